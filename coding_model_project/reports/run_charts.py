"""The charts of a run page, with their texts and lines.

Colours distinguish runs, dashes the lines of a run; stacked charts have a figure per run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from coding_model_project.reports.charts import (
    Chart,
    Key,
    Kind,
    Line,
    RunData,
    bar_chart,
    history_chart,
    line_chart,
    line_key,
    stack_chart,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCharts:
    """The charts of a run page."""

    rows: Sequence[Sequence[Chart]]
    """Rows of charts, in which runs are compared side by side."""
    missing: Sequence[str]
    """Titles of charts without recorded data."""
    history: Chart
    """Chart of one problem's history: a trace per run and split, filled in by the page."""


_MEAN = "Mean over problems of the {}; 95% interval over problems."
_ARMS = Kind(
    title="Accepted, by arm", percent=True, band="seeds",
    note="Mean of an arm's seeds at the steps that all have; the band spans the least to the greatest "
    "seed.",
)  # fmt: skip
_LINES = {
    "accepted": Kind(
        title="Accepted, training", percent=True, band="95% interval",
        note="Share of samples that pass every hidden test, as a mean over problems; 95% interval over "
        "problems.",
    ),
    "accepted_by_source": Kind(
        title="Accepted, by source", percent=True, band="95% interval",
        note="Problems of each data set separately; intervals as above.",
    ),
    "validation": Kind(
        title="Accepted, validation", percent=True, band="95% interval",
        note="As for training, on problems that are not trained on.",
    ),
    "evaluations": Kind(
        title="Checkpoints, evaluated", percent=True, band="95% interval",
        note="pass@1 of checkpoints that `watch` evaluated, with 95% intervals over problems.",
    ),
    "measures": Kind(
        title="Checkpoints, by other tools", band="95% interval", from_zero=False,
        note="Values of `watch --command`; intervals from the tools' standard errors.",
    ),
    "reward": Kind(title="Mean reward", band="95% interval", note=_MEAN.format("mean reward")),
    "reward_by_source": Kind(
        title="Mean reward, by source", band="95% interval",
        note="Problems of each data set separately; intervals as above.",
    ),
    "loss": Kind(
        title="Loss", from_zero=False,
        note="Supervised training: loss per batch, and on the validation set.",
    ),
    "parts": Kind(
        title="Reward parts", from_zero=False, note="Mean of each part over the samples of a step.",
    ),
    "length": Kind(
        title="Response length", unit="tokens", band="p5–p95",
        note="Mean over a step's samples; the band holds 90% of them (5th to 95th percentile).",
    ),
    "public": Kind(
        title="Public tests passed, hidden failed", percent=True,
        note="Share of judged samples; a rise can mean that the public tests are being gamed.",
    ),
    "infra": Kind(
        title="Could not be judged", percent=True,
        note="Share of samples lost to infrastructure failures, which are not scored.",
    ),
    "mismatch": Kind(
        title="Rollout mismatch", unit="nats",
        note="Mean difference of a token's log-probability between rollout and trainer; both hold the "
        "same policy if it is near 0.",
    ),
    "staleness": Kind(
        title="Staleness",
        note="Weight versions between generation and training, by a sample's oldest token.",
    ),
    "evicted": Kind(
        title="Evicted groups",
        note="Groups of samples that were replaced: too old (coding.max_staleness), or none judged.",
    ),
}  # fmt: skip
_IN_SOME_RUNS = frozenset(
    {"accepted_by_source", "reward_by_source", "mismatch", "staleness", "evicted"}
)
"""Charts that not every run has, and that are not reported as missing."""
_STACKS = {
    "errors": Kind(
        title="Verdicts", percent=True,
        note="Share of each verdict among the judged training samples of a step.",
    ),
    "times": Kind(
        title="Where the time went", unit="seconds",
        note="Wall-clock time per step. Waiting for the judge excludes judging during generation; "
        "validation follows the step.",
    ),
}  # fmt: skip
_BARS = {
    "pass_at_k": Kind(
        title="pass@k", percent=True,
        note="Chance that at least one of k samples passes every hidden test; 95% interval over "
        "problems.",
    ),
    "months": Kind(
        title="Accepted, by month of publication", percent=True,
        note="pass@1 of the problems of each month; 95% interval over problems. From the "
        "cut-off on the model cannot have seen them in training.",
    ),
}  # fmt: skip
_HISTORY = Kind(title="Accepted share by step", note="", percent=True)


def run_charts(
    runs: Sequence[RunData], splits: Sequence[str], arms: Sequence[Line] = ()
) -> RunCharts:
    """Return the charts of a page about runs.

    Args:
        splits: splits of the samples, for a problem's history.
        arms: lines of a study's arms, for the first chart.
    """
    curves = [(line_key(arm.label, n), arm) for n, arm in enumerate(arms)]
    first = [line_chart("arms", _ARMS, curves)] if curves else []
    missing = []
    trained = [run for run in runs if not run.scores]
    for name, kind in _LINES.items():
        if curves := list(_run_curves(runs, name)):
            first.append(line_chart(name, kind, curves))
        elif trained and name not in _IN_SOME_RUNS:
            missing.append(kind.title)
    for name, kind in _BARS.items():
        sides = {
            dataset if len(runs) == 1 else f"{run.name} · {dataset}": scores
            for run in runs
            for dataset, scores in run.scores.get(name, {}).items()
        }
        if sides:
            first.append(bar_chart(name, kind, sides))
    rows = [first]
    for name, kind in _STACKS.items():
        having = [(n, run) for n, run in enumerate(runs) if name in run.stacks]
        if trained and not having:
            missing.append(kind.title)
        charts = [
            stack_chart(
                f"{name}-{n}",
                replace(kind, title=f"{kind.title}: {run.name}") if len(runs) > 1 else kind,
                run.stacks[name],
                by_name=name == "errors",
            )
            for n, run in having
        ]
        if len(runs) > 1:
            rows.append(charts)
        else:
            first += charts
    samples = [
        (
            line_key(f"{run.name} · {split}" if len(runs) > 1 else split, number, of),
            {"run": number, "split": split},
        )
        for number, run in enumerate(runs)
        for of, split in enumerate(splits)
    ]
    history = history_chart("history", _HISTORY, samples)
    return RunCharts(rows=rows, missing=missing, history=history)


def _run_curves(runs: Sequence[RunData], chart: str) -> Iterator[tuple[Key, Line]]:
    """Yield the lines of all runs; a run's lines differ in dash, or in colour if it is the only run."""
    for number, run in enumerate(runs):
        for of, line in enumerate(run.lines.get(chart, ())):
            if len(runs) > 1:
                name = " · ".join(part for part in (run.name, line.label) if part)
                yield line_key(name, number, of), line
            else:
                yield line_key(line.label or run.name, of), line
