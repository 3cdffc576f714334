"""Masking of truncated responses in the loss (`coding.training.mask_truncated`)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import transfer_queue as tq

_MASKS = ("response_mask", "loss_mask")
"""Fields that hold masks: verl's loss sums over the first and divides by the sum of the second."""


def is_truncated(response: Sequence[int], max_tokens: int, ends: Collection[int]) -> bool:
    """Return whether a response reaches the token limit without ending in an end token."""
    return len(response) >= max_tokens and response[-1] not in ends


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
        if is_truncated(response.tolist(), max_tokens, ends)
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
