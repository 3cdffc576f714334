"""What a verdict is worth by its outcome alone. Pure: no input or output, no state."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from coding_model_project.types import Problem, Reward, Verdict

RewardFn = Callable[[Problem, Verdict], Reward]
"""A reward's parts sum to its total."""


class RewardKind(StrEnum):
    """What a verdict is worth."""

    dense = "dense"
    """The share of hidden tests passed, in [0, 1]."""
    sparse = "sparse"
    """1 if every hidden test passed, else 0."""


def dense(problem: Problem, verdict: Verdict) -> Reward:
    """The share of hidden tests passed, in [0, 1], or what a Harbor verifier gave, in its range.

    Needs verdicts without an early stop.
    """
    return Reward(total=verdict.score, parts={"outcome": verdict.score})


def sparse(problem: Problem, verdict: Verdict) -> Reward:
    """1 if every hidden test passed, else 0. All failing outcomes are worth the same."""
    total = float(verdict.passed)
    return Reward(total=total, parts={"outcome": total})


REWARDS: dict[str, RewardFn] = {RewardKind.dense: dense, RewardKind.sparse: sparse}
"""By `coding.reward.kind`."""


def reward(kind: RewardKind) -> RewardFn:
    """The reward function of a kind."""
    return REWARDS[kind]


def discounted(reward: Reward, factor: float) -> Reward:
    """A reward times a factor, each of its parts too."""
    parts = {name: value * factor for name, value in reward.parts.items()}
    return Reward(total=sum(parts.values()), parts=parts)
