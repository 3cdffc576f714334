"""Order of a step's samples within its mini-batches, so that micro-batches hold few wasted tokens.

The loss of a mini-batch is a sum over its samples, so their order within it does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coding_model_project.verl_ext.trainers.batch_fields import group_of


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
