"""verl's vLLM rollout on a CPU (verl.workers.rollout.replica.RolloutReplicaRegistry, a public seam)."""

from __future__ import annotations

import os
from typing import Any

from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry

from coding_model_project.verl_ext.cluster.forkserver import spawn_from_here
from coding_model_project.verl_ext.cluster.names import job_of_cluster


def load_replica() -> type:
    """verl's vLLM replica, whose engine takes new weights the way vLLM's CPU build can."""
    import ray
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

    class CPUvLLMHttpServer(vLLMHttpServer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # The processes forked next name the socket that they take new weights from after it.
            os.environ["VERL_RAY_JOB_ID"] = job_of_cluster()
            spawn_from_here()  # vLLM's own two processes

        def _get_worker_extension_cls(self) -> str:
            return "coding_model_project.verl_ext.cpu.vllm_worker.CPUWorkerExtension"

    class CPUvLLMReplica(vLLMReplica):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.server_class = ray.remote(CPUvLLMHttpServer)

    return CPUvLLMReplica


def register() -> None:
    RolloutReplicaRegistry.register("vllm", load_replica)
    base._ROLLOUT_REGISTRY["vllm", "async"] = f"{__package__}.weights.CPUServerAdapter"
