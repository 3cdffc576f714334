"""Pure functions that turn a verdict's outcome into a reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from numbers import Real

from coding_model_project.config_key import named_callable
from coding_model_project.errors import ConfigError
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


_REWARDS: dict[str, RewardFn] = {RewardKind.dense: dense, RewardKind.sparse: sparse}


def reward_function(kind: str, key: str = "coding.reward.kind") -> RewardFn:
    """Return the reward function of this name, or one of the user's.

    Args:
        kind: a `RewardKind`, or "package.module:function" of a function that returns a number for a
            problem and a verdict.
        key: where the kind is given, for messages.

    Raises:
        ConfigError: there is no such function. Also raised by a user's function that fails or returns
            anything but a finite number.
    """
    if kind in _REWARDS:
        return _REWARDS[kind]
    known = "dense, sparse or package.module:function"
    own: Callable[[Problem, Verdict], float] = named_callable(key, kind, known)

    def outcome(problem: Problem, verdict: Verdict) -> Reward:
        where = f"{key}={kind}: {problem.id}"
        try:
            total = own(problem, verdict)
        except Exception as error:
            raise ConfigError(f"{where}: {type(error).__name__}: {error}") from error
        if not isinstance(total, Real) or not math.isfinite(total):
            raise ConfigError(f"{where}: returned {total!r}; expected a finite number")
        return Reward(total=float(total), parts={"outcome": float(total)})

    return outcome


def discounted(reward: Reward, factor: float) -> Reward:
    """Multiply a reward and each of its parts by a factor."""
    parts = {name: value * factor for name, value in reward.parts.items()}
    return Reward(total=sum(parts.values()), parts=parts)
