"""`coding.training`: GRPO's sampling of rows and its guards, beside verl's own keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coding_model_project.config_key import key


class TrainingMode(StrEnum):
    """The schedule of generation relative to training."""

    sync = "sync"
    colocate_async = "colocate_async"
    separate_async = "separate_async"

    @property
    def asynchronous(self) -> bool:
        """True if samples may be older than the weights that train on them."""
        return self is not TrainingMode.sync


class TrainingSampler(StrEnum):
    """The order in which training rows are drawn."""

    uniform = "uniform"
    online = "online"


@dataclass
class GuardsConfig:
    """Bounds on a step's metrics. A run that stays outside a bound ends."""

    max_grad_norm: float | None = key(
        None, "Upper bound of `actor/grad_norm`, which is measured before clipping.", unit="1"
    )
    min_entropy: float | None = key(
        None,
        "Lower bound of `actor/entropy`; below it, the policy has stopped exploring.",
        unit="nats",
    )
    max_entropy: float | None = key(
        None, "Upper bound of `actor/entropy`; above it, the policy is diverging.", unit="nats"
    )
    max_mismatch: float | None = key(
        None,
        "Upper bound of `rollout/mismatch`, the mean difference of a token's log-probability between "
        "rollout and trainer; one step above it ends the run. null: 0.01 in single precision, 0.1 in 16 "
        "bits, 0.3 with a quantised rollout; ten times that in asynchronous modes.",
        unit="nats",
    )
    patience: int = key(
        3, "Consecutive steps outside a bound after which the run ends.", unit="steps"
    )


@dataclass
class TrainingConfig:
    sampler: TrainingSampler = key(
        TrainingSampler.uniform,
        "Sampling of training rows: `uniform`, as in verl, or `online`, which prefers problems whose "
        "groups have disagreed so far. A problem that always or never passes teaches nothing.",
    )
    rates: str | None = key(
        None,
        "Initial pass rates for `sampler=online`: a file of `data rates` for these training problems. "
        "null: all problems start equal.",
    )
    mask_truncated: bool = key(
        False,
        "Mask responses that hit `data.max_response_length` in the loss. They are still judged, and "
        "count in their group's mean.",
    )
    max_resampling: float = key(
        0.0,
        "Limit of the prompts that a step resamples to replace groups that agree "
        "(`algorithm.filter_groups`), as a multiple of `data.train_batch_size`. Beyond it, such groups "
        "are kept. 0: no limit, as in verl.",
        unit="1",
    )
    guards: GuardsConfig = field(default_factory=GuardsConfig)


def staleness_of(mode: TrainingMode, asked: int | None) -> int:
    """Return the number of weight versions that a trained sample may lag behind.

    Args:
        asked: `coding.max_staleness`.
    """
    return int(mode.asynchronous) if asked is None else asked
