"""`coding.training`: what GRPO trains on and what keeps it stable, beside verl's own keys."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coding_model_project.config_key import key


class TrainingMode(StrEnum):
    """When samples are generated, relative to the training on them."""

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
    """Bounds of a step's metrics, none by default. A run that stays outside of one is ended."""

    max_grad_norm: float | None = key(
        None, "Of `actor/grad_norm`, which is measured before clipping.", unit="1"
    )
    min_entropy: float | None = key(
        None, "Of `actor/entropy`: below, the policy has stopped exploring.", unit="nats"
    )
    max_entropy: float | None = key(
        None, "Of `actor/entropy`: above, the policy falls apart.", unit="nats"
    )
    max_mismatch: float | None = key(
        None,
        "Of `rollout_corr/k3_kl`, the divergence between the log-probabilities of training and rollout. "
        "Needs `actor_rollout_ref.rollout.calculate_log_probs=true`.",
        unit="nats",
    )
    patience: int = key(
        3, "End the run after so many steps in a row outside of a bound.", unit="steps"
    )


@dataclass
class TrainingConfig:
    sampler: TrainingSampler = key(
        TrainingSampler.uniform,
        "How training rows are drawn: `uniform`, as verl does, or `online`, by how much the groups "
        "of each problem have disagreed so far: a problem that always or never passes teaches nothing.",
    )
    rates: str | None = key(
        None,
        "For `sampler=online`: measured pass rates to start from (`data rates`), of these training "
        "problems. null: all problems start alike.",
    )
    mask_truncated: bool = key(
        False,
        "Leave responses that ran into `data.max_response_length` out of the loss. They are judged, and "
        "count in the mean of their group.",
    )
    max_resampling: float = key(
        0.0,
        "Where groups that agree are replaced (`algorithm.filter_groups`): once so many prompts were "
        "sampled in their place in a step, as a multiple of `data.train_batch_size`, groups are taken as "
        "they come. 0: no limit, as in verl.",
        unit="1",
    )
    guards: GuardsConfig = field(default_factory=GuardsConfig)


def staleness_of(mode: TrainingMode, asked: int | None) -> int:
    """Return how many weight versions a trained sample may lag behind.

    Args:
        asked: `coding.max_staleness`.
    """
    return int(mode.asynchronous) if asked is None else asked
