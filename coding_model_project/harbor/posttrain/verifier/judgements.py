"""The judges' answers: a verdict, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coding_model_project.errors import CodingModelError


class Verdict(StrEnum):
    """A judge's answer. `missing` is none: it never counts as `accepted`."""

    accepted = "accepted"
    rejected = "rejected"
    missing = "missing"


class JudgeError(CodingModelError):
    """A judge gives no verdict: the reason, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One judge's verdict with what it rests on."""

    judge: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the judgement as judge_analysis.json has it."""
        return {
            "judge": self.judge,
            "verdict": str(self.verdict),
            "reasons": list(self.reasons),
            **self.details,
        }
