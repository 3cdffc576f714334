"""Changes to vLLM's own processes, made when this module is imported. The fork server imports it.

torch's store listens on its own address only. Readers of shared-memory queues poll for a shorter time.
While the worker computes a step, the engine waits for its answer. For the first second it polls in a
loop, which on two cores takes one of them from the worker.
"""

from __future__ import annotations

from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

from coding_model_project.verl_ext.cluster import sockets

POLL_S = 0.0005
"""Time that a reader polls before it sleeps until it is notified; a step takes 10 ms or more."""

SpinCondition.__init__.__defaults__ = (POLL_S,)
sockets.bind_stores()
