"""`coding.reward`: the reward for a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coding_model_project.config_key import key
from coding_model_project.grading.rewards import RewardKind


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
