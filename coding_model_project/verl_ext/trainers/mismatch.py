"""Mismatch of rollout and trainer: how far apart their log-probabilities of the same tokens are.

After a weight sync both hold the same policy, so only rounding and their kernels differ. If a sync went
wrong, the trainer would learn from another policy's samples, and nothing else would show it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig
from verl.workers.utils.padding import response_from_nested

from coding_model_project.configs.schema import TrainingMode
from coding_model_project.errors import TrainingError

METRIC = "rollout/mismatch"
KEY = "coding.training.guards.max_mismatch"
LIMITS = {"float32": 0.01, "16 bits": 0.1, "fp8": 0.3}
"""Largest mean difference of a token's log-probability, in nats, by the precision of the rollout.

Seen in single precision: 1e-7 to 1e-5. Reported for 16 bits: 0.005 to 0.03, more for mixtures of experts,
whose routing flips; for fp8 weights some three times that. A policy of random weights is off by about the
logarithm of the vocabulary, 10 nats.
"""
_OF_STALE = 10.0
"""Factor of the limit for samples that may be older than the weights, as the policy has moved since."""
_OF_TOP_K = 1.0
"""Allowance for `top_k`: the rollout's probabilities are of the k likeliest tokens alone."""

_SAMPLES_PER_RANK = 4
_COPIES = "mismatch"
_INPUTS = ["input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask"]


def limit(config: DictConfig) -> float:
    """Return the mismatch above which a run ends."""
    given = config.coding.training.guards.max_mismatch
    if given is not None:
        return float(given)
    rollout = config.actor_rollout_ref.rollout
    trainer = config.actor_rollout_ref.actor.fsdp_config
    if rollout.get("quantization"):
        precision = "fp8"
    elif rollout.dtype == trainer.get("dtype") == "float32":
        precision = "float32"
    else:
        precision = "16 bits"
    stale = _OF_STALE if TrainingMode(config.coding.mode).asynchronous else 1.0
    top_p = -math.log(rollout.top_p) if 0 < rollout.top_p < 1 else 0.0
    return LIMITS[precision] * stale + top_p + (_OF_TOP_K if rollout.top_k > 0 else 0.0)


def measure(batch: Any, trainer: Any, config: DictConfig) -> float | None:
    """Return the mean difference |log p| of a step's sampled tokens, in nats.

    Only samples by the newest weights count. If verl computes no log-probabilities of its own (bypass
    mode), a few of them are used.

    Args:
        batch: verl's batch, after `_compute_old_log_prob`.
        trainer: the worker group of verl's actor.

    Returns:
        None if the rollout returns no log-probabilities (`rollout.calculate_log_probs=false`).
    """
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        return None
    keys = _newest(batch)
    place = {"partition_id": batch.partition_id}
    if config.algorithm.rollout_correction.bypass_mode:
        ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
        keys = keys[: _SAMPLES_PER_RANK * ranks]
        keys += keys[:1] * (-len(keys) % ranks)
        mine = _log_probs(batch, keys, trainer, config)
    else:
        fields: Any = tq.kv_batch_get(keys=keys, **place, select_fields=["old_log_probs"])
        mine = fields["old_log_probs"].values()
    names = ["rollout_log_probs", "response_mask"]
    sampled: Any = tq.kv_batch_get(keys=keys, **place, select_fields=names)
    theirs, mask = (sampled[name].values() for name in names)
    return float(((mine - theirs).abs() * mask).sum() / mask.sum().clamp(min=1))


def check(mismatch: float, most: float, step: int) -> None:
    """End the run if rollout and trainer disagree.

    Raises:
        TrainingError: says how far apart they are, and where to look.
    """
    if mismatch <= most:  # false for NaN too
        return
    raise TrainingError(
        f"step {step}: {METRIC} is {mismatch:.3g} nats a token, above {KEY}={most:g}: the rollout "
        "samples from another policy than the trainer's; look for a failed weight sync or an unsupported "
        "model in the rollout's log, compare actor_rollout_ref.rollout.dtype with "
        "actor_rollout_ref.actor.fsdp_config.dtype, or raise the bound"
    )


def _newest(batch: Any) -> list[str]:
    """Return the keys of the samples that the newest weights generated, without padding."""
    tagged = [
        (key, tag.get("min_global_steps") or 0)
        for key, tag in zip(batch.keys, batch.tags, strict=True)
        if not tag.get("is_padding", False)
    ]
    newest = max(version for _, version in tagged)
    return [key for key, version in tagged if version == newest]


def _log_probs(batch: Any, keys: Sequence[str], trainer: Any, config: DictConfig) -> torch.Tensor:
    """Return the trainer's log-probabilities of these samples' responses, one after another.

    verl writes them to the samples that it is given, and later expects all samples of a batch to have the
    same fields, so it gets copies.
    """
    place: dict[str, Any] = {
        "keys": [f"{_COPIES}_{i}" for i in range(len(keys))],
        "partition_id": _COPIES,
    }
    fields = tq.kv_batch_get(
        keys=list(keys), partition_id=batch.partition_id, select_fields=_INPUTS
    )
    tags = [dict(batch.tags[batch.keys.index(key)]) for key in keys]
    copies: Any = tq.kv_batch_put(**place, fields=fields, tags=tags)
    copies.extra_info.update(
        calculate_entropy=False,
        compute_loss=False,
        temperature=config.actor_rollout_ref.rollout.temperature,
        micro_batch_size_per_gpu=1,
    )
    try:
        trainer.compute_log_prob(copies)
        found: Any = tq.kv_batch_get(**place, select_fields=["log_probs", "response_mask"])
        return response_from_nested(found["log_probs"], found["response_mask"]).values()
    finally:
        tq.kv_clear(**place)
