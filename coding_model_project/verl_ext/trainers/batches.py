"""A step's samples in verl's TransferQueue: their keys, fields, order and masks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig
from verl.workers.utils.padding import response_from_nested


def group_of(key: str) -> str:
    """Return the prompt's id in a sample's key, which is `<prompt>_<session>_<turn>`."""
    return key.split("_", 1)[0]


def trained_keys(batch: Any) -> list[str]:
    """Return the keys of a batch's samples, without padding."""
    tagged = zip(batch.keys, batch.tags, strict=True)
    return [key for key, tag in tagged if not tag.get("is_padding", False)]


def final_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys (prompt_session_turn) of each session's last output, which has the verdict."""
    last: dict[str, tuple[int, str]] = {}
    for key in keys:
        session, _, turn = key.rpartition("_")
        last[session] = max(last.get(session, (-1, "")), (int(turn), key))
    return [key for _, key in last.values()]


def lone_samples(keys: Sequence[str]) -> list[str]:
    """Return the keys (prompt_session_turn) of the prompts with only one session."""
    sessions: dict[str, set[str]] = {}
    for key in keys:
        prompt, session, _ = key.rsplit("_", 2)
        sessions.setdefault(prompt, set()).add(session)
    return [key for key in keys if len(sessions[key.rsplit("_", 2)[0]]) == 1]


def model_tokens(keys: Sequence[str], partition: str) -> list[int]:
    """Return the number of generated tokens of each sample."""
    if not keys:
        return []
    place = {"keys": list(keys), "partition_id": partition}
    masks = tq.kv_batch_get(**place, select_fields=["response_mask"])["response_mask"]
    return [int(mask.sum()) for mask in masks]


def reward_infos(batch: Any, keys: list[str]) -> list[dict[str, Any]]:
    """Return the reward_extra_info of these samples of a batch."""
    place = {"keys": keys, "partition_id": batch.partition_id}
    return infos_of(tq.kv_batch_get(**place, select_fields=["extra_fields"]))


def infos_of(fields: Any) -> list[dict[str, Any]]:
    """Return each sample's reward_extra_info."""
    extras: list[Any] = [getattr(extra, "data", extra) for extra in fields["extra_fields"]]
    return [extra["reward_extra_info"] for extra in extras]


def sampled_entropy(batch: Any) -> float:
    """Return the mean of -log p over the tokens of a step, which estimates their entropy."""
    names = ["old_log_probs", "response_mask"]
    place = {"keys": batch.keys, "partition_id": batch.partition_id}
    fields: Any = tq.kv_batch_get(**place, select_fields=names)
    log_probs, mask = (fields[name].values() for name in names)
    return float(-(log_probs * mask).sum() / mask.sum().clamp(min=1))


def clear_advantages(batch: Any, keys: list[str]) -> None:
    """Zero the advantages of these samples of a batch."""
    place = {"keys": keys, "partition_id": batch.partition_id}
    fields = tq.kv_batch_get(**place, select_fields=["advantages", "returns"])
    tq.kv_batch_put(**place, fields=fields.apply(torch.zeros_like))


_GROUP_RELATIVE = frozenset(
    {"grpo", "grpo_vectorized", "grpo_passk", "rloo", "rloo_vectorized", "opo", "gpg"}
)
"""Advantage estimators that compare a sample with the others of its prompt."""


def clear_lone(batch: Any, judged: Sequence[str], config: Any) -> None:
    """Zero the advantages of judged samples that are left alone of their group.

    verl would compare such a sample with zero, so that its whole reward would be its advantage.
    """
    if config.algorithm.adv_estimator not in _GROUP_RELATIVE:
        return
    if config.actor_rollout_ref.rollout.n > 1 and (alone := lone_samples(judged)):
        clear_advantages(batch, alone)


def order_within(keys: Sequence[Any], within: int) -> list[int]:
    """Return the positions of samples, sorted by their key within each block of `within` samples."""
    runs = [range(len(keys))[start : start + within] for start in range(0, len(keys), within)]
    return [place for run in runs for place in sorted(run, key=keys.__getitem__)]


def arrange(batch: Any, config: Any) -> None:
    """Sort a step's samples within each mini-batch and rank.

    Packed samples (`model.use_remove_padding=true`) are sorted by group, whose prompt the CPU engine
    computes once. Without packing a micro-batch is as wide as its longest sample, so they are sorted by
    length.

    Args:
        batch: verl's batch, balanced over the ranks.
        config: configuration of the run.
    """
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    if actor.use_dynamic_bsz:  # verl arranges the micro-batches by their tokens
        return
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    within = max(1, actor.ppo_mini_batch_size * rollout.n // ranks)
    if config.actor_rollout_ref.model.use_remove_padding:
        keys: list[Any] = [group_of(key) for key in batch.keys]
    else:
        keys = [tag["seq_len"] for tag in batch.tags]
    batch.reorder(order_within(keys, within))


_MASKS = ("response_mask", "loss_mask")
"""Fields that hold masks: verl's loss sums over the first and divides by the sum of the second."""


@contextlib.contextmanager
def left_out(batch: Any, max_tokens: int, ends: Collection[int]) -> Iterator[float]:
    """Zero the masks of a batch's truncated responses, and restore them afterwards.

    Metrics still include these responses. If all are truncated none is masked, since a mean over nothing
    is NaN.

    Args:
        batch: a step's samples in TransferQueue.
        max_tokens: most tokens of a response.
        ends: ids of tokens that end a response.

    Yields:
        The share of masked responses.
    """
    place = {"partition_id": batch.partition_id}
    responses = tq.kv_batch_get(keys=batch.keys, **place, select_fields=["responses"])["responses"]
    cut = [
        key
        for key, response in zip(batch.keys, responses, strict=True)
        if len(response) >= max_tokens and int(response[-1]) not in ends
    ]
    if not cut or len(cut) == len(batch.keys):
        yield 0.0
        return
    masks = tq.kv_batch_get(keys=cut, **place, select_fields=list(_MASKS))
    tq.kv_batch_put(keys=cut, **place, fields=masks.apply(torch.zeros_like))
    try:
        yield len(cut) / len(batch.keys)
    finally:
        tq.kv_batch_put(keys=cut, **place, fields=masks)


_SAMPLES_PER_RANK = 4
_COPIES = "mismatch"
_INPUTS = ["input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask"]


def measured_mismatch(batch: Any, trainer: Any, config: DictConfig) -> float | None:
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
