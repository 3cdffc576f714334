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
    """The share of hidden tests passed, in [0, 1]. Needs verdicts without an early stop."""
    return Reward(total=verdict.pass_fraction, parts={"outcome": verdict.pass_fraction})


def sparse(problem: Problem, verdict: Verdict) -> Reward:
    """1 if every hidden test passed, else 0. All failing outcomes are worth the same."""
    total = float(verdict.passed)
    return Reward(total=total, parts={"outcome": total})


REWARDS: dict[str, RewardFn] = {RewardKind.dense: dense, RewardKind.sparse: sparse}
"""By `coding.reward.kind`."""


def reward(kind: RewardKind) -> RewardFn:
    """The reward function of a kind."""
    return REWARDS[kind]
