"""The judges' verdicts, or the reasons why they are missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coding_model_project.errors import CodingModelError


class Verdict(StrEnum):
    """A judge's verdict. `missing` never counts as `accepted`."""

    accepted = "accepted"
    rejected = "rejected"
    missing = "missing"


class JudgeError(CodingModelError):
    """A missing verdict. The message is the reason, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One judge's verdict with its reasons."""

    judge: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the judgement's entry for judge_analysis.json."""
        return {
            "judge": self.judge,
            "verdict": str(self.verdict),
            "reasons": list(self.reasons),
            **self.details,
        }
