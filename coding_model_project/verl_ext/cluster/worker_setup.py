"""Preparation of each of a run's Ray workers, before it runs anything: Ray's setup hook."""

from __future__ import annotations

from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR

from coding_model_project.verl_ext.cluster import sockets

VARIABLES = {WORKER_PROCESS_SETUP_HOOK_ENV_VAR: f"{__name__}.prepare"}
"""Environment variables of workers that call `prepare`. Their children inherit them."""


def prepare() -> None:
    """Close this process's sockets to strangers, and load checkpoints without running code."""
    from coding_model_project.verl_ext.trainers import weights_only

    sockets.encrypt_transfer_queue()
    sockets.bind_stores()
    sockets.require_key_of_vllm()
    weights_only.load_weights_only()
    weights_only.load_queue_safely()
