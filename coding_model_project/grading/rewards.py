"""`coding.reward`, and the pure functions that turn a verdict's outcome into a reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real

from coding_model_project.config_key import key, named_callable
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


class LengthBonus(StrEnum):
    """The programs that earn a bonus for being short."""

    accepted = "accepted"
    """Accepted programs only: a short failing program never earns more than a long passing one."""
    partial = "partial"
    """All programs, in proportion to the share of hidden tests passed. A short failing program may then
    earn more than a long passing one."""


@dataclass
class ShapingConfig:
    """Additions to the reward, all off by default."""

    length_weight: float = key(
        0.0,
        "Multiply a program's reward by `1 + weight·clip(reference/own − 1, 0, cap − 1)`, with lengths "
        "in bytes. The reference is the problem's shortest gold solution. 0: off.",
        unit="1",
    )
    length_cap: float = key(
        2.0, "Maximum ratio of lengths that earns a bonus; shorter programs earn no more.", unit="1"
    )
    length_bonus: LengthBonus = key(
        LengthBonus.accepted,
        "Programs that earn the length bonus: `accepted` ones, or with `partial` all, by their share of "
        "tests passed (`kind=dense` only), which may rank a short wrong program above a long right one.",
    )
    format_weight: float = key(
        0.0,
        "Reward for the requested form of a completion, right or wrong: exactly one closed code block, "
        "or with `prompt=bare` no fence.",
        unit="1",
    )
    overlong_buffer: int = key(
        0,
        "Number of final tokens of `data.max_response_length` with a linearly growing penalty (DAPO's "
        "soft overlong punishment). 0: off.",
        unit="tokens",
    )
    overlong_weight: float = key(1.0, "Penalty for a response of the full length.", unit="1")


@dataclass
class RewardConfig:
    kind: str = key(
        str(RewardKind.sparse),
        "Reward for a verdict: `dense` is the share of hidden tests passed; `sparse` is 1 if all of them "
        "pass, else 0; or `package.module:function`, your own function of a problem and its verdict.",
    )
    check_public: bool = key(
        True,
        "Run the public tests of programs that fail a hidden one within its limits, to report the share "
        "that passes the public tests only.",
    )
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
