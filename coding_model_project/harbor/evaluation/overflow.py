"""Rules for trials whose conversation outgrew the model's context: judge, fail or error.

The bash agent stops there, and the verifier judges its work so far. The tinker cookbook's `harbor_rl`
instead ends the episode without a verifier, trains on a fixed negative reward, and lists such trials as
errors in evaluations. The rule applies when trials are counted; their files keep the verifier's result.
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
"""Harbor's name for it."""


def as_counted(trials: Iterable[TrialResult], rule: OverflowRule) -> list[TrialResult]:
    """Return the trials with a rule applied."""
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
    """Return whether the context ended the agent's work, in any step of the task."""
    return any((used.metadata or {}).get("ending") == Ending.context for used in trial.usage)
