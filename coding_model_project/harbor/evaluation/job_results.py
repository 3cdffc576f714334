"""What the trials of a Harbor job come to. An outage is counted, and is never a failure.

Harbor's own statistics take a trial without a reward for a reward of 0, give pass@k only where every
reward is a single 0 or 1, and never pass@1. Here a trial passes, fails, or is an error; rates and means
are over those that passed or failed, and the errors stand beside them by cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import UUID

import orjson

from coding_model_project.evaluation.statistics.pass_at_k import pass_at_k, rate_interval
from coding_model_project.harbor.failures import FailureCause
from coding_model_project.harbor.format.reward_rules import main_reward
from coding_model_project.harbor.format.trial_results import (
    CONFIG_FILE,
    LOCK_FILE,
    RESULT_FILE,
    TrialResult,
    write_json,
)

PASSES_AT = 1.0
NO_MAIN_REWARD = "no_main_reward"
"""The cause of an error that is no exception: several rewards, and none is called "reward"."""


class Outcome(StrEnum):
    """What became of a trial."""

    passed = "PASS"
    failed = "FAIL"
    error = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one agent's trials on one data set come to."""

    passed: int
    failed: int
    errors: Mapping[str, int]
    """Trials without a valid reward, by `FailureCause`; part of no rate."""
    n_tasks: int
    """Tasks with at least one trial that passed or failed: the rates are over these."""
    n_tasks_without: int
    """Tasks of which every trial was an error."""
    mean_reward: float | None
    """Of the main reward, per task and then over tasks; None if nothing passed or failed."""
    pass_at_k: Mapping[int, float]
    """For 1, powers of two and multiples of five, up to the trials that every counted task has."""
    interval: tuple[float, float] | None
    """95%, of pass@1, over tasks."""


def outcome(trial: TrialResult, passes_at: float = PASSES_AT) -> Outcome:
    """A trial passes if its main reward is at least `passes_at`."""
    value = main_reward(trial.rewards)
    if value is None or not trial.reward_valid:
        return Outcome.error
    return Outcome.passed if value >= passes_at else Outcome.failed


def error_cause(trial: TrialResult) -> str:
    """Why a trial has no valid reward."""
    if trial.failure_cause is not None:
        return str(trial.failure_cause)
    return NO_MAIN_REWARD if trial.rewards else str(FailureCause.unclassified)


def score(trials: Iterable[TrialResult], passes_at: float = PASSES_AT) -> Score:
    """Count trials of one agent on one data set."""
    errors: Counter[str] = Counter()
    graded: dict[str, list[bool]] = defaultdict(list)
    rewards: dict[str, list[float]] = defaultdict(list)
    tasks = set()
    for trial in trials:
        tasks.add(trial.task_key)
        what, value = outcome(trial, passes_at), main_reward(trial.rewards)
        if what is Outcome.error or value is None:
            errors[error_cause(trial)] += 1
            continue
        graded[trial.task_key].append(what is Outcome.passed)
        rewards[trial.task_key].append(value)
    ks = _ks(min((len(attempts) for attempts in graded.values()), default=0))
    rates = {k: [pass_at_k(len(a), sum(a), k) for a in graded.values()] for k in ks}
    means = [sum(values) / len(values) for values in rewards.values()]
    n_passed = sum(sum(attempts) for attempts in graded.values())
    return Score(
        passed=n_passed,
        failed=sum(len(attempts) for attempts in graded.values()) - n_passed,
        errors=dict(errors),
        n_tasks=len(graded),
        n_tasks_without=len(tasks) - len(graded),
        mean_reward=fmean(means) if means else None,
        pass_at_k={k: fmean(values) for k, values in rates.items()},
        interval=rate_interval(rates[1]) if rates else None,
    )


def scores(trials: Iterable[TrialResult]) -> dict[str, Score]:
    """The scores of a job by Harbor's keys: agent, model if there is one, and data set."""
    return {key: score(members) for key, members in _by_key(trials).items()}


# ── the job's own files ───────────────────────────────────────────────────────────────────────────


def write_job(
    folder: Path,
    trials: Sequence[TrialResult],
    *,
    job_id: UUID,
    config: Mapping[str, Any],
    started_at: datetime,
    n_total: int,
    finished: bool,
) -> None:
    """Write a job's config.json, lock.json and result.json beside its trials' folders.

    Args:
        trials: those that are over; each has been written below `folder`.
        config: as Harbor's job configuration: "n_concurrent_trials", "agents", "environment",
            "tasks" or "datasets", …; those left out have its defaults.
        n_total: trials that the job is to have.
    """
    now = datetime.now(UTC).isoformat()
    places = {"job_name": folder.name, "jobs_dir": str(folder.parent)}
    write_json(folder / CONFIG_FILE, {**places, **config})
    locks = [orjson.loads((folder / t.trial_name / LOCK_FILE).read_bytes()) for t in trials]
    lock = {
        "schema_version": 3,
        "created_at": started_at.isoformat(),
        "n_concurrent_trials": config.get("n_concurrent_trials", 1),
        "retry": config.get("retry", {}),
        "trials": locks,
    }
    write_json(folder / LOCK_FILE, lock)
    result = {
        "id": str(job_id),
        "started_at": started_at.isoformat(),
        "updated_at": now,
        "finished_at": now if finished else None,
        "n_total_trials": n_total,
        "stats": job_stats(trials, n_total),
    }
    write_json(folder / RESULT_FILE, result)


def job_stats(trials: Sequence[TrialResult], n_total: int) -> dict[str, Any]:
    """The statistics of a job's result.json: Harbor's counts, and our means and pass@k."""
    exceptions = [trial.exception_info for trial in trials if trial.exception_info is not None]
    cancelled = sum(one.exception_type == "CancelledError" for one in exceptions)
    usage = [used for trial in trials for used in trial.usage]
    amounts = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
    given = {name: [getattr(used, name) for used in usage] for name in amounts}
    return {
        "n_completed_trials": len(trials),
        "n_errored_trials": len(exceptions),
        "n_running_trials": 0,
        "n_pending_trials": max(0, n_total - len(trials)),
        "n_cancelled_trials": cancelled,
        "n_retries": 0,
        "evals": {key: _eval_stats(members) for key, members in _by_key(trials).items()},
        **{name: _sum(values) for name, values in given.items()},
    }


def _eval_stats(trials: Sequence[TrialResult]) -> dict[str, Any]:
    reward_stats: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    exception_stats: dict[str, list[str]] = defaultdict(list)
    for trial in trials:
        for key, value in (trial.rewards or {}).items():
            reward_stats[key][str(value)].append(trial.trial_name)
        if trial.exception_info is not None:
            exception_stats[trial.exception_info.exception_type].append(trial.trial_name)
    counted = score(trials)
    return {
        "n_trials": sum(trial.rewards is not None for trial in trials),
        "n_errors": sum(len(names) for names in exception_stats.values()),
        "metrics": _metrics(trials),
        "pass_at_k": {str(k): value for k, value in counted.pass_at_k.items()},
        "reward_stats": reward_stats,
        "exception_stats": exception_stats,
    }


def _metrics(trials: Sequence[TrialResult]) -> list[dict[str, float]]:
    """The mean per key over trials with a valid reward; "mean" where there is one key."""
    given = [trial.rewards or {} for trial in trials if trial.reward_valid]
    keys = sorted({key for rewards in given for key in rewards})
    if not keys:
        return []
    if len(keys) == 1:
        return [{"mean": fmean([rewards[keys[0]] for rewards in given])}]
    return [{key: fmean([rewards.get(key, 0) for rewards in given]) for key in keys}]


def _by_key(trials: Iterable[TrialResult]) -> dict[str, list[TrialResult]]:
    groups: dict[str, list[TrialResult]] = defaultdict(list)
    for trial in trials:
        model = trial.agent_info.model_info
        parts = (trial.agent_info.name, model.name if model else None, trial.source or "adhoc")
        groups["__".join(part for part in parts if part is not None)].append(trial)
    return groups


def _ks(most: int) -> list[int]:
    powers = {2**i for i in range(most.bit_length()) if 2**i <= most}
    return sorted(powers | set(range(5, most + 1, 5)))


def _sum(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) if given else None
