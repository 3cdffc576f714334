"""Fields of a step's samples, read from verl's TransferQueue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq


def group_of(key: str) -> str:
    """Return the prompt's id in a sample's key, which is `<prompt>_<session>_<turn>`."""
    return key.split("_", 1)[0]


def trained_keys(batch: Any) -> list[str]:
    """Return the keys of a batch's samples, without padding."""
    tagged = zip(batch.keys, batch.tags, strict=True)
    return [key for key, tag in tagged if not tag.get("is_padding", False)]


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
