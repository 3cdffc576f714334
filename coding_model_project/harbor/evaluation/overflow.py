"""Trials whose conversation outgrew the model's context: judged, failed, or counted as errors.

A bash agent stops there, and the verifier judges what it did until then. Other harnesses do not: the
tinker cookbook's `harbor_rl` ends the episode without a verifier, trains on a fixed reward below 0, and
its evaluations list such trials as errors. What a trial counts as is decided when trials are counted:
its files keep what the verifier said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from coding_model_project.episodes.bash import Ending
from coding_model_project.harbor.evaluation.overflow_rule import OverflowRule
from coding_model_project.harbor.format.trial_results import (
    ExceptionInfo,
    TrialResult,
    VerifierResult,
)

_EXCEPTION = "ContextWindowExceededError"
"""As Harbor calls it."""


def as_counted(trials: Iterable[TrialResult], rule: OverflowRule) -> list[TrialResult]:
    """Return the trials as they count by a rule."""
    return [_counted(trial, rule) if overflowed(trial) else trial for trial in trials]


def _counted(trial: TrialResult, rule: OverflowRule) -> TrialResult:
    if rule is OverflowRule.judge or trial.verifier_result is None:
        return trial
    if rule is OverflowRule.fail:
        zero = VerifierResult(rewards={"reward": 0.0}, integrity=trial.verifier_result.integrity)
        return replace(trial, verifier_result=zero)
    outgrown = ExceptionInfo(
        exception_type=_EXCEPTION,
        exception_message="the conversation outgrew the model's context",
        exception_traceback="",
        occurred_at=trial.finished_at or datetime.now(UTC),
    )
    return replace(trial, verifier_result=None, exception_info=outgrown)


def overflowed(trial: TrialResult) -> bool:
    """Return true if the context ended the agent's work, in a task of several steps in any of them."""
    return any((used.metadata or {}).get("ending") == Ending.context for used in trial.usage)
