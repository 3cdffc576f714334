"""Pure functions that turn a verdict's outcome into a reward."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from coding_model_project.types import Problem, Reward, Verdict

RewardFn = Callable[[Problem, Verdict], Reward]
"""A reward function. The parts of its reward sum to the total."""


class RewardKind(StrEnum):
    """The kind of reward for a verdict."""

    dense = "dense"
    """The share of hidden tests passed, in [0, 1]."""
    sparse = "sparse"
    """1 if every hidden test passed, else 0."""


def dense(problem: Problem, verdict: Verdict) -> Reward:
    """Return the share of hidden tests passed, in [0, 1], or a Harbor verifier's reward, in its range.

    Needs verdicts without an early stop.
    """
    return Reward(total=verdict.score, parts={"outcome": verdict.score})


def sparse(problem: Problem, verdict: Verdict) -> Reward:
    """Return 1 if every hidden test passed, else 0 for every kind of failure."""
    total = float(verdict.passed)
    return Reward(total=total, parts={"outcome": total})


REWARDS: dict[str, RewardFn] = {RewardKind.dense: dense, RewardKind.sparse: sparse}
"""Reward functions by `coding.reward.kind`."""


def discounted(reward: Reward, factor: float) -> Reward:
    """Multiply a reward and each of its parts by a factor."""
    parts = {name: value * factor for name, value in reward.parts.items()}
    return Reward(total=sum(parts.values()), parts=parts)
