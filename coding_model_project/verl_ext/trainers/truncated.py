"""Responses that ran into the length limit, left out of the loss (`coding.training.mask_truncated`)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import transfer_queue as tq

_MASKS = ("response_mask", "loss_mask")
"""verl's loss sums over the first, and divides by the sum of the second."""


def is_truncated(response: Sequence[int], max_tokens: int, ends: Collection[int]) -> bool:
    """Return true if a response has all the tokens it may have, and no end of text last."""
    return len(response) >= max_tokens and response[-1] not in ends


@contextlib.contextmanager
def left_out(batch: Any, max_tokens: int, ends: Collection[int]) -> Iterator[float]:
    """Zero the masks of a batch's truncated responses, and give them back afterwards.

    Responses stay what they are in all metrics. Where all are truncated nothing is left out, since a mean
    over nothing is no number.

    Args:
        batch: a step's samples in TransferQueue.
        max_tokens: of a response.
        ends: token ids that end one.

    Yields:
        The share of responses left out.
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
