"""The rule for trials whose conversation outgrew the model's context."""

from __future__ import annotations

from enum import StrEnum


class OverflowRule(StrEnum):
    """The counted outcome of a trial that ran out of the model's context."""

    judge = "judge"
    """The verifier's reward, as for any other trial."""
    fail = "fail"
    """A reward of 0, whatever the verifier's."""
    error = "error"
    """An error, which counts in no rate."""
