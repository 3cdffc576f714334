"""Rollouts → sums per step and problem, in one pass; sums and metrics → the lines and stacks of charts.

Memory grows with the number of (step, problem) pairs, not with the length of the texts.

Intervals are 95% and over problems, because samples of a problem are not independent; the line is then
the mean of the problems' means. Accepted shares have the interval of an evaluation's rates, rewards a
percentile bootstrap.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from coding_model_project.data.training.rows import source_of
from coding_model_project.evaluation.intervals import bootstrap_interval, rate_interval
from coding_model_project.reports.charts import Line, Stack
from coding_model_project.runs.overview import series
from coding_model_project.runs.rollouts import Rollout
from coding_model_project.types import ERROR_GROUPS, ErrorType

ACCEPTED = "accepted"


@dataclass(slots=True)
class Group:
    """The samples of one problem at one step."""

    n: int = 0
    accepted: int = 0
    reward: float = 0.0


@dataclass(slots=True)
class StepTally:
    """The samples of one step and split."""

    n: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    """Groups by problem."""
    verdicts: Counter[str] = field(default_factory=Counter)
    """Counts of accepted samples and of each error group."""
    parts: dict[str, float] = field(default_factory=dict)
    """Sum of each reward part."""
    tokens: array[int] = field(default_factory=lambda: array("I"))
    n_public: int = 0
    """Samples with a verdict on public tests."""
    n_public_only: int = 0
    """Samples that passed the public tests but failed a hidden one."""
    judge_s: float = 0.0

    def add(self, row: Rollout) -> None:
        error = row.verdict.get("error")
        group = self.groups.setdefault(row.problem, Group())
        group.n += 1
        group.accepted += error is None
        group.reward += row.reward
        self.n += 1
        self.verdicts[error_group(error)] += 1
        for part, value in row.reward_parts.items():
            self.parts[part] = self.parts.get(part, 0.0) + value
        self.tokens.append(row.tokens)
        public = row.verdict.get("public_passed")
        self.n_public += public is not None
        self.n_public_only += bool(public) and error is not None
        self.judge_s += float(row.verdict.get("judge_s") or 0)

    def accepted_rates(self) -> list[float]:
        """Return the share of accepted samples per problem."""
        return [group.accepted / group.n for group in self.groups.values()]

    def rewards(self) -> list[float]:
        """Return the mean reward per problem."""
        return [group.reward / group.n for group in self.groups.values()]

    def by_source(self) -> dict[str, StepTally]:
        """Return tallies by data source, with groups only."""
        tallies: dict[str, StepTally] = {}
        for problem, group in self.groups.items():
            tallies.setdefault(source_of(problem), StepTally()).groups[problem] = group
        return tallies


@dataclass(slots=True)
class RunTally:
    """A run's samples, by split and step."""

    splits: dict[str, dict[int, StepTally]] = field(default_factory=dict)

    def add(self, row: Rollout) -> None:
        self.splits.setdefault(row.split, {}).setdefault(row.step, StepTally()).add(row)

    def forget(self, split: str, step: int) -> None:
        """Drop the samples of a step that is repeated."""
        self.splits.get(split, {}).pop(step, None)

    @property
    def n(self) -> int:
        return sum(step.n for step in self._all())

    @property
    def tokens(self) -> int:
        return sum(sum(step.tokens) for step in self._all())

    @property
    def judge_s(self) -> float:
        return sum(step.judge_s for step in self._all())

    def _all(self) -> Iterator[StepTally]:
        return (step for split in self.splits.values() for step in split.values())

    def steps(self, split: str) -> dict[int, StepTally]:
        """Return a split's steps in order."""
        return dict(sorted(self.splits.get(split, {}).items()))


def error_group(error: str | None) -> str:
    """Return `accepted`, or the group of an error type."""
    if error is None:
        return ACCEPTED
    # Runs of other versions may have unknown error types.
    return str(ErrorType(error).group) if error in ErrorType.__members__ else error


Metrics = Mapping[int, dict[str, float]]

N_RESAMPLES = 2_000
"""Bootstrap resamples for a chart's band; comparisons use `intervals.N_RESAMPLES`."""

VERDICTS = (ACCEPTED, *(str(group) for group in ERROR_GROUPS))
_SPLITS = ("train", "validation")
_VALIDATION = re.compile(r"val-core/(?P<source>.+)/acc/mean@\d+")
_STALENESS = {
    "oldest": "training/off_policy/trajectory_staleness_worst/max",
    "mean": "training/off_policy/trajectory_staleness_worst/mean",
}
"""Weight versions between a sample's generation and its training."""
_EVICTED = {
    "too old": "training/off_policy/evicted_samples",
    "failed": "training/rollout_failure/evicted_samples",
}
_STEP_PARTS = {
    "log-probabilities": "timing_s/old_log_prob",
    "update": "timing_s/update_actor",
    "weight sync": "timing_s/update_weights",
    "checkpoint": "timing_s/save_checkpoint",
}


def chart_lines(
    tally: RunTally, metrics: Metrics, evaluations: Metrics = MappingProxyType({})
) -> dict[str, list[Line]]:
    """Return the lines of a run's charts, without charts that have no data."""
    train, validation = tally.steps("train"), tally.steps("validation")
    charts = {
        "accepted": _clustered(
            train, StepTally.accepted_rates, dict(series(metrics, "judge/accepted"))
        ),
        "validation": _clustered(validation, StepTally.accepted_rates) or _validation(metrics),
        "evaluations": _evaluated(evaluations, "pass_at_1"),
        "measures": _evaluated(evaluations, "value"),
        "accepted_by_source": _by_source(train, StepTally.accepted_rates),
        "reward": _clustered(train, StepTally.rewards, dict(series(metrics, "critic/score/mean"))),
        "reward_by_source": _by_source(train, StepTally.rewards),
        "loss": _logged(metrics, {"train": "train/loss", "validation": "val/loss"}),
        "parts": _parts(train),
        "length": _lengths(train) or _logged(metrics, {"": "response_length/mean"}),
        "public": [line for split in _SPLITS for line in _public(split, tally.steps(split))],
        "infra": _logged(
            metrics, {"train": "judge/infra_rate", "validation": "val-aux/judge/infra_rate"}
        ),
        "mismatch": _logged(metrics, {"": "rollout/mismatch"}),
        "staleness": _nonzero(_logged(metrics, _STALENESS)),
        "evicted": _nonzero(_logged(metrics, _EVICTED)),
    }
    return {chart: lines for chart, lines in charts.items() if lines}


def chart_stacks(tally: RunTally, metrics: Metrics) -> dict[str, Stack]:
    """Return a run's stacked charts, without those that have no data."""
    stacks = {
        "errors": _errors(metrics, tally.steps("train")),
        "times": _times(metrics),
    }
    return {chart: stack for chart, stack in stacks.items() if stack.steps}


def _nonzero(lines: Iterable[Line]) -> list[Line]:
    """Return the lines of what happens in some runs only, without those that are 0 throughout."""
    return [line for line in lines if any(line.values)]


def _clustered(
    steps: Mapping[int, StepTally],
    per_problem: Callable[[StepTally], list[float]],
    logged: Mapping[int, float] = MappingProxyType({}),
) -> list[Line]:
    """Return means with intervals, or the logged mean for steps without recorded samples."""
    values, bounds = dict(logged), {}
    for number, step in steps.items():
        means = per_problem(step)
        values[number] = float(np.mean(means))
        bounds[number] = _interval(tuple(means), per_problem is StepTally.accepted_rates)
    if not values:
        return []
    numbers = sorted(values)
    unknown = (None, None)
    return [
        Line(
            steps=numbers,
            values=[values[number] for number in numbers],
            low=[bounds.get(number, unknown)[0] for number in numbers] if bounds else None,
            high=[bounds.get(number, unknown)[1] for number in numbers] if bounds else None,
        )
    ]


def _by_source(
    steps: Mapping[int, StepTally], per_problem: Callable[[StepTally], list[float]]
) -> list[Line]:
    """Return a line per data source; empty for a single source, which `_clustered` draws."""
    found: dict[str, dict[int, StepTally]] = {}
    for number, step in steps.items():
        for source, tally in step.by_source().items():
            found.setdefault(source, {})[number] = tally
    if len(found) < 2:
        return []
    return [
        replace(line, label=source)
        for source, tallies in sorted(found.items())
        for line in _clustered(tallies, per_problem)
    ]


@lru_cache(maxsize=2_000)  # the live view redraws its runs repeatedly
def _interval(
    values: tuple[float, ...], are_rates: bool
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of a mean, or no interval for a single problem."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None, None
    return rate_interval(values) if are_rates else bootstrap_interval(values, n=N_RESAMPLES)


def _logged(metrics: Metrics, names: Mapping[str, str]) -> list[Line]:
    """Return logged metrics as lines, by label."""
    found = {label: series(metrics, metric) for label, metric in names.items()}
    return [
        Line(label=label, steps=[s for s, _ in points], values=[v for _, v in points])
        for label, points in found.items()
        if points
    ]


def _validation(metrics: Metrics) -> list[Line]:
    logged = sorted({metric for data in metrics.values() for metric in data})
    matches = [match for metric in logged if (match := _VALIDATION.fullmatch(metric))]
    return _logged(metrics, {match["source"]: match.string for match in matches})


def _evaluated(evaluations: Metrics, part: str) -> list[Line]:
    """Return the watched checkpoints' lines, per data set and protocol, or per metric and tool.

    Args:
        part: "pass_at_1" for our evaluations, "value" for other tools.
    """
    keys = dict.fromkeys(key for data in evaluations.values() for key in data)
    names = [key.rpartition("/")[0] for key in keys if key.rpartition("/")[2] == part]
    lines = []
    for name in names:
        points = series(evaluations, f"{name}/{part}")
        steps = [step for step, _ in points]
        low, high = (dict(series(evaluations, f"{name}/{bound}")) for bound in ("low", "high"))
        lines.append(
            Line(
                label=name,
                steps=steps,
                values=[value for _, value in points],
                low=[low.get(step) for step in steps] if low else None,
                high=[high.get(step) for step in steps] if high else None,
            )
        )
    return lines


def _parts(steps: Mapping[int, StepTally]) -> list[Line]:
    names = sorted({part for step in steps.values() for part in step.parts})
    return [
        Line(
            label=name,
            steps=list(steps),
            values=[step.parts.get(name, 0.0) / step.n for step in steps.values()],
        )
        for name in names
    ]


def _lengths(steps: Mapping[int, StepTally]) -> list[Line]:
    if not steps:
        return []
    lengths = [np.asarray(step.tokens) for step in steps.values()]
    return [
        Line(
            steps=list(steps),
            values=[float(tokens.mean()) for tokens in lengths],
            low=[float(np.quantile(tokens, 0.05)) for tokens in lengths],
            high=[float(np.quantile(tokens, 0.95)) for tokens in lengths],
        )
    ]


def _public(split: str, steps: Mapping[int, StepTally]) -> list[Line]:
    """Return the share of judged samples that pass the public tests but fail a hidden one."""
    ran = {number: step for number, step in steps.items() if step.n_public}
    if not ran:
        return []
    shares = [step.n_public_only / step.n for step in ran.values()]
    return [Line(label=split, steps=list(ran), values=shares)]


def _errors(metrics: Metrics, steps: Mapping[int, StepTally]) -> Stack:
    """Return the share of each verdict: as logged, else by the recorded samples."""
    logged = {n: data for n, data in metrics.items() if f"judge/{ACCEPTED}" in data}
    shares = logged or {
        n: {f"judge/{v}": tally.verdicts[v] / tally.n for v in VERDICTS}
        for n, tally in steps.items()
    }
    parts = {v: [data.get(f"judge/{v}", 0.0) for data in shares.values()] for v in VERDICTS}
    return Stack(steps=list(shares), parts=parts)


def _times(metrics: Metrics) -> Stack:
    """Return seconds per step. Validation follows verl's step and is not part of `timing_s/step`."""
    timed = {
        step: _step_times(data)
        for step, data in metrics.items()
        if "timing_s/step" in data or "timing_s/testing" in data
    }
    names = next(iter(timed.values()), {})
    parts = {name: [times[name] for times in timed.values()] for name in names}
    return Stack(steps=list(timed), parts={n: v for n, v in parts.items() if any(v)})


def _step_times(data: Mapping[str, float]) -> dict[str, float]:
    generating = data.get("timing_s/gen", 0.0)
    # Judging overlaps generation; only the time after the last generated sample is waiting.
    waiting = min(max(data.get("judge/wait_s", 0.0), 0.0), generating)
    parts = {name: data.get(metric, 0.0) for name, metric in _STEP_PARTS.items()}
    rest = data.get("timing_s/step", 0.0) - generating - sum(parts.values())
    return {
        "generation": generating - waiting,
        "waiting for the judge": waiting,
        **parts,
        "rest": max(0.0, rest),
        "validation": data.get("timing_s/testing", 0.0),
    }
