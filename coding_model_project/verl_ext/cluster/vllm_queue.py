"""Changes to vLLM's own processes, made when this module is imported. The fork server imports it.

torch's store listens on its own address only. Readers of shared-memory queues poll for a shorter time.
While the worker computes a step, the engine waits for its answer. For the first second it polls in a
loop, which on two cores takes one of them from the worker. A reader that sleeps may miss a notification,
which its writer drops if an earlier one is still on its way, so readers also look again by themselves.
"""

from __future__ import annotations

from vllm.distributed.device_communicators import shm_broadcast

from coding_model_project.verl_ext.cluster import worker_setup

POLL_S = 0.0005
"""Time that a reader polls before it sleeps until it is notified; a step takes 10 ms or more."""

LOOK_MS = 10
"""Time after which a sleeping reader looks again. vLLM's 5,000 made a step of 5 s take up to a minute."""

shm_broadcast.SpinCondition.__init__.__defaults__ = (POLL_S,)
shm_broadcast.SHM_READER_RECHECK_INTERVAL_MS = LOOK_MS  # pyrefly: ignore[bad-assignment]
worker_setup.bind_stores()
