"""verl's vLLM rollout on a CPU, registered in verl.workers.rollout.replica.RolloutReplicaRegistry."""

from __future__ import annotations

import os
from typing import Any

from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry

from coding_model_project.verl_ext.cluster.forkserver import spawn_from_here
from coding_model_project.verl_ext.cluster.worker_setup import job_of_cluster


def load_replica() -> type:
    """Return verl's vLLM replica with an engine that loads new weights as vLLM's CPU build can."""
    import ray
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

    class CPUvLLMHttpServer(vLLMHttpServer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # The processes forked next derive the name of their weight socket from it.
            os.environ["VERL_RAY_JOB_ID"] = job_of_cluster()
            spawn_from_here()  # vLLM's own processes

        def _preprocess_engine_kwargs(self, engine_kwargs: dict[str, Any]) -> None:
            super()._preprocess_engine_kwargs(engine_kwargs)
            if self.config.tensor_model_parallel_size == 1:
                # The engine computes in its own process, without a message to a worker and back for
                # each token. vLLM has that on a CPU only with this variable, which its engine for
                # servers does not read.
                engine_kwargs.setdefault("distributed_executor_backend", "uni")
                os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

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
