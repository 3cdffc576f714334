"""The charts of a run page. `run_charts.yaml` has their titles and notes.

Colours distinguish runs, dashes the lines of a run; stacked charts have a figure per run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from coding_model_project.reports.charts import (
    Chart,
    Key,
    Kind,
    Line,
    RunData,
    Shape,
    Trace,
    bar_chart,
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


_CHARTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
_RARE = frozenset(name for name, keys in _CHARTS["lines"].items() if keys.pop("rare", False))
"""Charts that not every run has, and that are not reported as missing."""
_LINES, _BARS, _STACKS = (
    {name: Kind(**keys) for name, keys in _CHARTS[shape].items()}
    for shape in ("lines", "bars", "stacks")
)
_ARMS, _HISTORY = _LINES.pop("arms"), _LINES.pop("history")


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
        elif trained and name not in _RARE:
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
    history = [  # the page draws the steps of the problem that the reader follows
        Trace(
            key=line_key(f"{run.name} · {split}" if len(runs) > 1 else split, number, of),
            meta={"run": number, "split": split},
        )
        for number, run in enumerate(runs)
        for of, split in enumerate(splits)
    ]
    return RunCharts(
        rows=rows,
        missing=missing,
        history=Chart("history", _HISTORY, Shape.lines, history, height=200),
    )


def _run_curves(runs: Sequence[RunData], chart: str) -> Iterator[tuple[Key, Line]]:
    """Yield the lines of all runs; a run's lines differ in dash, or in colour if it is the only run."""
    for number, run in enumerate(runs):
        for of, line in enumerate(run.lines.get(chart, ())):
            if len(runs) > 1:
                name = " · ".join(part for part in (run.name, line.label) if part)
                yield line_key(name, number, of), line
            else:
                yield line_key(line.label or run.name, of), line
