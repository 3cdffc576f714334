"""Sorting of samples by length, so that micro-batches hold little padding.

Without packing (`model.use_remove_padding=false`) a micro-batch is as wide as its longest sequence. The
loss of a mini-batch is a sum over its samples, so their order within it does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def order_by_length(lengths: Sequence[int], within: int) -> list[int]:
    """Return the positions of samples, sorted by length within each block of `within` samples."""
    runs = [range(len(lengths))[start : start + within] for start in range(0, len(lengths), within)]
    return [place for run in runs for place in sorted(run, key=lengths.__getitem__)]


def sort_by_length(batch: Any, config: Any) -> None:
    """Sort a step's samples by length within each mini-batch and rank, unless they are packed.

    Args:
        batch: verl's batch, balanced over the ranks.
        config: configuration of the run.
    """
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    if config.actor_rollout_ref.model.use_remove_padding or actor.use_dynamic_bsz:
        return
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    within = max(1, actor.ppo_mini_batch_size * rollout.n // ranks)
    batch.reorder(order_by_length([tag["seq_len"] for tag in batch.tags], within))
