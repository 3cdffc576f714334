"""A cap on groups that replace filtered ones (`coding.training.max_resampling`)."""

from __future__ import annotations

from typing import Any


def cap(buffer: Any, most: float) -> None:
    """Make a replay buffer stop filtering groups once it has replaced enough of them in a step.

    verl has no cap in the V1 trainer: with a policy that solves all or nothing it samples for ever.

    Args:
        buffer: verl's ReplayBuffer, with `algorithm.filter_groups` on.
        most: most replacement prompts per step.
    """
    metric, refill, sample = buffer.filter_groups_metric, buffer.refill_fn, buffer.sample
    n_sampled = 0

    def counted(n: int) -> Any:
        nonlocal n_sampled
        n_sampled += n
        if n_sampled >= most:
            buffer.filter_groups_metric = None
        return refill(n)

    def capped(*args: Any, **kwargs: Any) -> Any:
        nonlocal n_sampled
        n_sampled, buffer.filter_groups_metric = 0, metric
        batch, metrics = sample(*args, **kwargs)
        if n_sampled:
            lifted = float(buffer.filter_groups_metric is None)
            metrics |= {"training/resampled_prompts": n_sampled, "training/filter_lifted": lifted}
        return batch, metrics

    buffer.refill_fn, buffer.sample = counted, capped
