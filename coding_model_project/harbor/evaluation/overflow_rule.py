"""A choice of evaluations: what a trial counts as whose conversation outgrew the model's context."""

from __future__ import annotations

from enum import StrEnum


class OverflowRule(StrEnum):
    """The outcome counted for a trial that ran out of the model's context."""

    judge = "judge"
    """By its verifier's reward, as any other."""
    fail = "fail"
    """As a reward of 0, whatever the verifier says."""
    error = "error"
    """As an error, which is in no rate."""
