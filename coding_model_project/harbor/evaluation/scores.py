"""The scores of a Harbor job's trials. An outage is counted, and never as a failure.

Harbor's own statistics count a trial without a reward as a reward of 0, give pass@k only if every reward
is a single 0 or 1, and never pass@1. Here a trial passes, fails, or is an error. Rates and means are over
trials that passed or failed; errors are counted separately, by cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from coding_model_project.evaluation.intervals import pass_at_k, rate_interval
from coding_model_project.evaluation.tables import table_text
from coding_model_project.harbor.failures import counted_cause
from coding_model_project.harbor.outcome import TrialResult

_PASSES_AT = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score of one agent's trials on one data set."""

    passed: int
    failed: int
    errors: Mapping[str, int]
    """Trials without a valid reward, by `failures.counted_cause`. They count in no rate."""
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


def score(trials: Iterable[TrialResult]) -> Score:
    """Score the trials of one agent on one data set."""
    errors: Counter[str] = Counter()
    rewards: dict[tuple[str, ...], list[float]] = {}
    for trial in trials:
        own = rewards.setdefault(trial.task_key, [])
        if trial.reward is None:
            errors[counted_cause(trial.exceptions, trial.rewards)] += 1
        else:
            own.append(trial.reward)
    graded = [own for own in rewards.values() if own]
    passes = [[value >= _PASSES_AT for value in own] for own in graded]
    most = min(map(len, graded), default=0)
    powers = {2**i for i in range(most.bit_length()) if 2**i <= most}
    ks = sorted(powers | set(range(5, most + 1, 5)))
    rates = {k: [pass_at_k(len(own), sum(own), k) for own in passes] for k in ks}
    n_passed = sum(map(sum, passes))
    return Score(
        passed=n_passed,
        failed=sum(map(len, passes)) - n_passed,
        errors=dict(errors),
        n_tasks=len(graded),
        n_tasks_without=len(rewards) - len(graded),
        mean_reward=fmean(map(fmean, graded)) if graded else None,
        pass_at_k={k: fmean(values) for k, values in rates.items()},
        interval=rate_interval(rates[1]) if rates else None,
    )


def by_source(
    trials: Sequence[TrialResult], sources: Sequence[str]
) -> dict[str, list[TrialResult]]:
    """Group trials by their tasks' data sets, in this order."""
    groups: dict[str, list[TrialResult]] = {name: [] for name in sources}
    for trial in trials:
        groups.setdefault(trial.source, []).append(trial)
    return groups


def summary(trials: Sequence[TrialResult]) -> dict[str, Any]:
    """Return counts, rates with their interval, causes and costs.

    "pass_of_all" is the share of all trials, including errors, that passed, as some harnesses report it;
    "failures" counts failed trials by the end of the model's work: "done" if the model declared it done.
    """
    counted = score(trials)
    return {
        "n_trials": len(trials),
        "n_tasks": counted.n_tasks,
        "n_tasks_without": counted.n_tasks_without,
        "PASS": counted.passed,
        "FAIL": counted.failed,
        "ERROR": sum(counted.errors.values()),
        "failures": _failures(trials),
        "errors": dict(counted.errors),
        "pass_at_k": {str(k): round(value, 4) for k, value in counted.pass_at_k.items()},
        "pass_of_all": round(counted.passed / len(trials), 4) if trials else None,
        "interval": counted.interval,
        "mean_reward": counted.mean_reward,
        "integrity": _integrity(trials),
        **_costs(trials),
    }


def _costs(trials: Sequence[TrialResult]) -> dict[str, Any]:
    """Return the costs of trials, including errors, which also cost.

    Prompt tokens are by the server's count: each turn's whole conversation. Wall seconds are of the model
    and its commands (agent_s), and of verifiers (judge_s).
    """
    return {
        "prompt_tokens": sum(one.prompt_tokens for one in trials),
        "completion_tokens": sum(one.completion_tokens for one in trials),
        "turns": sum(one.turns for one in trials),
        "agent_s": round(sum(one.agent_s for one in trials), 3),
        "judge_s": round(sum(one.judge_s for one in trials), 3),
    }


def _integrity(trials: Sequence[TrialResult]) -> dict[str, Any]:
    """Return the trials with a valid reward, and pass@1, per integrity (`Integrity`)."""
    groups: dict[str, list[TrialResult]] = defaultdict(list)
    for trial in trials:
        if trial.reward is not None:
            groups[trial.integrity].append(trial)
    counted = {name: (len(members), score(members)) for name, members in sorted(groups.items())}
    return {
        name: {"n_trials": n, "PASS": own.passed, "pass_at_1": round(own.pass_at_k[1], 4)}
        for name, (n, own) in counted.items()
    }


def task_table(trials: Sequence[TrialResult]) -> str:
    """Format a line per task and a total: outcomes, pass@1, costs per trial, and causes."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("task", no_wrap=True)
    for name in ("PASS", "FAIL", "ERROR", "pass@1", "turns", "tokens", "agent s", "judge s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("causes")
    groups: dict[tuple[str, ...], list[TrialResult]] = defaultdict(list)
    for trial in trials:
        groups[trial.task_key].append(trial)
    often = Counter(members[0].task_name for members in groups.values())
    rows: list[tuple[str, Sequence[TrialResult]]] = []
    for first, *others in groups.values():
        parent = Path(first.path).parent.name
        shared = f" ({parent})" if often[first.task_name] > 1 else ""
        rows.append((first.task_name + shared, (first, *others)))
    for name, members in sorted(rows, key=lambda row: row[0]):
        table.add_row(name, *_cells(members))
    table.add_section()
    table.add_row(f"{len(groups)} tasks", *_cells(trials), style="bold")
    return table_text(table)


def _cells(trials: Sequence[TrialResult]) -> list[str]:
    counted, spent, n = score(trials), _costs(trials), len(trials)
    rate = counted.pass_at_k.get(1)
    causes = {**_failures(trials), **counted.errors}
    return [
        *(str(counted.passed), str(counted.failed), str(sum(counted.errors.values()))),
        "–" if rate is None else f"{rate:.1%}",
        f"{spent['turns'] / n:.1f}",
        f"{(spent['prompt_tokens'] + spent['completion_tokens']) / n:,.0f}",
        f"{spent['agent_s'] / n:.1f}",
        f"{spent['judge_s'] / n:.1f}",
        ", ".join(f"{number} × {cause}" for cause, number in sorted(causes.items())),
    ]


def _failures(trials: Iterable[TrialResult]) -> dict[str, int]:
    failed = [one for one in trials if one.reward is not None and one.reward < _PASSES_AT]
    ends = (one.ending or counted_cause(one.exceptions, one.rewards) for one in failed)
    return dict(Counter(f"ended by {end}" for end in ends))


# ── Harbor's own statistics ───────────────────────────────────────────────────────────────────────


def job_stats(trials: Sequence[TrialResult], n_total: int) -> dict[str, Any]:
    """Return the statistics of a job's result.json: Harbor's counts, and our means and pass@k."""
    spent = _costs(trials)
    return {
        "n_completed_trials": len(trials),
        "n_errored_trials": sum(trial.exception is not None for trial in trials),
        "n_running_trials": 0,
        "n_pending_trials": max(0, n_total - len(trials)),
        "n_cancelled_trials": 0,
        "n_retries": 0,
        "evals": {key: _eval_stats(members) for key, members in _by_key(trials).items()},
        "n_input_tokens": spent["prompt_tokens"],
        "n_output_tokens": spent["completion_tokens"],
    }


def _eval_stats(trials: Sequence[TrialResult]) -> dict[str, Any]:
    reward_stats: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    exception_stats: dict[str, list[str]] = defaultdict(list)
    for trial in trials:
        for key, value in (trial.rewards or {}).items():
            reward_stats[key][str(value)].append(trial.trial_name)
        if trial.exception is not None:
            exception_stats[trial.exception].append(trial.trial_name)
    valid = [trial.rewards or {} for trial in trials if trial.reward_valid]
    keys = sorted({key for rewards in valid for key in rewards})
    means = {key: fmean([rewards.get(key, 0) for rewards in valid]) for key in keys}
    return {
        "n_trials": sum(trial.rewards is not None for trial in trials),
        "n_errors": sum(len(names) for names in exception_stats.values()),
        # Harbor calls the mean of an only reward "mean".
        "metrics": [{"mean": means[keys[0]]} if len(keys) == 1 else means] if keys else [],
        "pass_at_k": {str(k): value for k, value in score(trials).pass_at_k.items()},
        "reward_stats": reward_stats,
        "exception_stats": exception_stats,
    }


def _by_key(trials: Iterable[TrialResult]) -> dict[str, list[TrialResult]]:
    groups: dict[str, list[TrialResult]] = defaultdict(list)
    for trial in trials:
        parts = (trial.agent, trial.model, trial.source)
        groups["__".join(part for part in parts if part is not None)].append(trial)
    return groups
