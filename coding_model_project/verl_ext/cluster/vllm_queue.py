"""Shorter polling by the readers of vLLM's shared-memory queues, set when this module is imported.

While the worker computes a step, the engine waits for its answer. For the first second it polls in a
loop, which on two cores takes one of them from the worker. The fork server imports this module, so
vLLM's processes have it.
"""

from __future__ import annotations

from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

POLL_S = 0.0005
"""Time that a reader polls before it sleeps until it is notified; a step takes 10 ms or more."""

SpinCondition.__init__.__defaults__ = (POLL_S,)
