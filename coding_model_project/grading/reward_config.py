"""`coding.reward`: the worth of a verdict."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coding_model_project.config_key import key
from coding_model_project.grading.rewards import RewardKind


class LengthBonus(StrEnum):
    """Which programs are worth more for being short."""

    accepted = "accepted"
    """Accepted ones only: no short program that fails is worth more than a long one that passes."""
    partial = "partial"
    """All, in proportion to the share of hidden tests passed. A short program that fails some may then
    be worth more than a long one that passes all."""


@dataclass
class ShapingConfig:
    """All off by default."""

    length_weight: float = key(
        0.0,
        "Multiply a program's reward by `1 + weight·clip(reference/own − 1, 0, cap − 1)`, the lengths in "
        "bytes, the reference the problem's shortest gold solution. 0: off.",
        unit="1",
    )
    length_cap: float = key(
        2.0, "Programs shorter than the reference by more earn no more.", unit="1"
    )
    length_bonus: LengthBonus = key(
        LengthBonus.accepted,
        "Which programs that applies to: `accepted` ones, or `partial`, all by their share of tests "
        "passed (`kind=dense` only), which may put a short wrong program above a long right one.",
    )
    format_weight: float = key(
        0.0,
        "Reward of a completion that is what was asked for, right or wrong: one closed code block and "
        "nothing else, or with `prompt=bare` no fence.",
        unit="1",
    )
    overlong_buffer: int = key(
        0,
        "The last so many tokens of `data.max_response_length` cost ever more of the reward (DAPO's soft "
        "overlong punishment). 0: off.",
        unit="tokens",
    )
    overlong_weight: float = key(1.0, "What a response of the full length loses by that.", unit="1")


@dataclass
class RewardConfig:
    kind: RewardKind = key(
        RewardKind.sparse,
        "What a verdict is worth: `dense` the share of hidden tests passed, `sparse` 1 if all of them "
        "are passed, else 0.",
    )
    check_public: bool = key(
        True,
        "Run the public tests of programs that fail a hidden one, to report the share that passes "
        "what the prompt shows and fails what it hides.",
    )
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
