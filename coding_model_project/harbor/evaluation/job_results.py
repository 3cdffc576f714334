"""The scores of a Harbor job's trials. An outage is counted, and never as a failure.

Harbor's own statistics count a trial without a reward as a reward of 0, give pass@k only if every reward
is a single 0 or 1, and never pass@1. Here a trial passes, fails, or is an error. Rates and means are over
trials that passed or failed; errors are counted separately, by cause.
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
from uuid import uuid4

import orjson

from coding_model_project.atomic import write_json
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.statistics.intervals import pass_at_k, rate_interval
from coding_model_project.harbor.failures import FailureCause, counted_cause
from coding_model_project.harbor.format.reward_rules import main_reward
from coding_model_project.harbor.format.trial_results import (
    CONFIG_FILE,
    LOCK_FILE,
    RESULT_FILE,
    TrialResult,
)
from coding_model_project.harbor.recording import Recorder, Worked, harbors_name
from coding_model_project.harbor.trial_outcome import TrialOutcome

PASSES_AT = 1.0
NO_MAIN_REWARD = "no_main_reward"
"""The cause of an error without an exception: several rewards, none of them named "reward"."""


class Outcome(StrEnum):
    """A trial's outcome."""

    passed = "PASS"
    failed = "FAIL"
    error = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score of one agent's trials on one data set."""

    passed: int
    failed: int
    errors: Mapping[str, int]
    """Trials without a valid reward, by `FailureCause`. They count in no rate."""
    n_tasks: int
    """Tasks with at least one trial that passed or failed. Rates are over these."""
    n_tasks_without: int
    """Tasks whose trials were all errors."""
    mean_reward: float | None
    """The main reward's mean per task, then over tasks; None if no trial passed or failed."""
    pass_at_k: Mapping[int, float]
    """pass@k for 1, powers of two and multiples of five, up to the fewest trials of a counted task."""
    interval: tuple[float, float] | None
    """The 95% interval of pass@1, over tasks."""


def outcome(trial: TrialResult, passes_at: float = PASSES_AT) -> Outcome:
    """Return a trial's outcome: it passes if its main reward is at least `passes_at`."""
    value = main_reward(trial.rewards)
    if value is None or not trial.reward_valid:
        return Outcome.error
    return Outcome.passed if value >= passes_at else Outcome.failed


def error_cause(trial: TrialResult) -> str:
    """Return why a trial has no valid reward."""
    cause = counted_cause(trial.exceptions)
    return cause or (NO_MAIN_REWARD if trial.rewards else str(FailureCause.unclassified))


def score(trials: Iterable[TrialResult], passes_at: float = PASSES_AT) -> Score:
    """Score the trials of one agent on one data set."""
    errors: Counter[str] = Counter()
    graded: dict[str, list[bool]] = defaultdict(list)
    rewards: dict[str, list[float]] = defaultdict(list)
    tasks = set()
    for trial in trials:
        tasks.add(trial.task_key)
        result, value = outcome(trial, passes_at), main_reward(trial.rewards)
        if result is Outcome.error or value is None:
            errors[error_cause(trial)] += 1
            continue
        graded[trial.task_key].append(result is Outcome.passed)
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
    """Return a job's scores by Harbor's keys: agent, model if there is one, and data set."""
    return {key: score(members) for key, members in _by_key(trials).items()}


# ── the job's own files ───────────────────────────────────────────────────────────────────────────


class Job:
    """A job's folder: trials as they end, and the job's own files, which `write` makes anew.

    Args:
        agent: Harbor's entry for the agent: "name", and perhaps "model_name" and "kwargs".
        environment: see `harbors_name`.
    """

    def __init__(
        self, folder: Path, agent: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        self.folder, self._agent, self._environment = folder.resolve(), agent, environment
        self.id, self.started = uuid4(), datetime.now(UTC)
        self.trials: list[TrialResult] = []

    def add(
        self,
        outcome: TrialOutcome,
        worked: Sequence[Worked] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> TrialResult:
        """Write a trial that has just ended; see `Recorder.record`."""
        recorder = Recorder(
            job=self.folder,
            job_id=self.id,
            agent=self._agent["name"],
            environment=self._environment,
            model=self._agent.get("model_name"),
        )
        self.trials.append(recorder.record(outcome, worked, settings))
        return self.trials[-1]

    def write(self, n_total: int, **config: Any) -> None:
        """Write config.json, lock.json and result.json beside the trials' folders.

        Args:
            n_total: the planned number of trials.
            config: Harbor's job configuration: "n_concurrent_trials", "tasks", …; missing keys have
                Harbor's defaults.
        """
        now = datetime.now(UTC).isoformat()
        places = {"job_name": self.folder.name, "jobs_dir": str(self.folder.parent)}
        worker = {"agents": [dict(self._agent)], "environment": dict(self._environment)}
        write_json(self.folder / CONFIG_FILE, {**places, **config, **worker})
        lock = {
            "schema_version": 3,
            "created_at": self.started.isoformat(),
            "n_concurrent_trials": config.get("n_concurrent_trials", 1),
            "retry": {},
            "trials": [
                orjson.loads((self.folder / one.trial_name / LOCK_FILE).read_bytes())
                for one in self.trials
            ],
        }
        write_json(self.folder / LOCK_FILE, lock)
        result = {
            "id": str(self.id),
            "started_at": self.started.isoformat(),
            "updated_at": now,
            "finished_at": now if len(self.trials) >= n_total else None,
            "n_total_trials": n_total,
            "stats": job_stats(self.trials, n_total),
        }
        write_json(self.folder / RESULT_FILE, result)


def new_job(folder: Path, agent: str, environment: str) -> Job:
    """Make the folder of a new job.

    Raises:
        ConfigError: it is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--out: {folder} is not empty; pass a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return Job(folder, {"name": agent}, harbors_name(environment))


def job_stats(trials: Sequence[TrialResult], n_total: int) -> dict[str, Any]:
    """Return the statistics of a job's result.json: Harbor's counts, and our means and pass@k."""
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
    """Return the mean per key over trials with a valid reward, named "mean" if there is one key."""
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
