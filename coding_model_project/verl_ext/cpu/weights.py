"""The trainer's side of verl's weight sync to vLLM."""

from __future__ import annotations

from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

from coding_model_project.verl_ext.cluster.worker_setup import job_of_cluster, own_place


class CPUServerAdapter(ServerAdapter):
    """An adapter that sends weights through a socket of this run alone; see `job_of_cluster`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        job = ray.get_runtime_context().get_job_id()
        self.zmq_handle = own_place(self.zmq_handle.replace(job, job_of_cluster()))
