"""Charts as plain values that figures.js draws: lines, stacks and scores.

Colours are variables of page.css, so charts follow the reader's colour scheme.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_HALF_UP, Context
from enum import StrEnum
from pathlib import Path
from typing import Any

from coding_model_project.evaluation.scores import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a chart by step, with an interval if `low` and `high` are given."""

    label: str = ""
    """Label that distinguishes the lines of a run and chart; empty for a single line."""
    steps: Sequence[int]
    values: Sequence[float]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Additive parts by step: shares of samples, or seconds."""

    steps: Sequence[int]
    parts: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value with its interval."""

    label: str
    value: float
    low: float
    high: float
    note: str = ""
    """Text for the hover label and the caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """Data of a run, without its samples."""

    name: str
    state: str
    facts: Sequence[tuple[str, str]]
    """Labels and texts of the run's header."""
    n_rollouts: int
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    """Lines by chart: accepted, accepted_by_source, validation, evaluations, measures, reward,
    reward_by_source, loss, parts, length, infra, public."""
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    """Stacks by chart: errors (shares) and times (seconds)."""
    scores: Mapping[str, Mapping[str, Sequence[Bar]]] = field(default_factory=dict)
    """Bars of a finished evaluation, by chart and data set: pass_at_k, and months (pass@1 by month of
    publication)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The samples on a page."""

    table: Mapping[str, Any]
    """Columns and their texts, in the layout of `sample_selection.SampleTable`."""
    n_shown: int
    n_total: int
    n_whole: int
    """Number of problems with all their samples on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of `write_report`."""

    path: Path
    page_bytes: int
    n_shown: int
    n_total: int


N_COLOURS = 8
"""Number of colours for runs, and for parts, in page.css; a ninth run reuses the first colour."""
_DASHES = ("solid", "6px,4px", "2px,3px", "6px,3px,2px,3px")
"""SVG dash patterns; "solid" marks a line, because an area has none."""
_FOUR_DIGITS = Context(prec=4, rounding=ROUND_HALF_UP)
_TINY = 1e-3
"""Values below it have an exponent, as in figures.js."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A chart's texts and scale."""

    title: str
    note: str
    percent: bool = False
    unit: str = ""
    band: str = ""
    """Name of the interval between a line's `low` and `high`."""
    from_zero: bool = True
    """Start the scale at 0 instead of the least value."""

    def text(self, value: float | None) -> str:
        """Format a value with the rounding of the JavaScript table and hover label: halves go up."""
        if value is None or not math.isfinite(value):
            return "–"
        if self.percent:
            return percent(value)
        rounded = _FOUR_DIGITS.create_decimal_from_float(float(value)).normalize()
        return f"{rounded:e}" if 0 < abs(value) < _TINY else f"{rounded:,f}"


class Shape(StrEnum):
    """A way to draw a chart's traces."""

    lines = "lines"
    """Lines by step, with bands."""
    stack = "stack"
    """Stacked bars by step."""
    bars = "bars"
    """Grouped bars by label, with whiskers."""
    differences = "differences"
    """One row per label, around zero, with whiskers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A legend entry."""

    name: str
    colour: str
    dash: str = ""
    """Dash pattern of a line; empty for an area."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Values drawn in one colour."""

    key: Key
    x: Sequence[float | str] = ()
    y: Sequence[float | str] = ()
    low: Sequence[float | None] | None = None
    """Lower end of each value's band or whisker."""
    high: Sequence[float | None] | None = None
    text: Sequence[str] | None = None
    """Text after each value in the hover label."""
    meta: Mapping[str, Any] | None = None
    """Data for the page's scripts."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Traces with their texts."""

    id: str
    """Unique on a page."""
    kind: Kind
    shape: Shape
    traces: Sequence[Trace]
    caption: str = ""
    height: int = 260
    """Height in pixels."""

    def plain(self) -> dict[str, Any]:
        """Return the chart as figures.js reads it."""
        traces = [asdict(trace) for trace in self.traces]
        return {
            **asdict(self.kind),
            "shape": self.shape,
            "caption": self.caption,
            "height": self.height,
            "data": [{**trace.pop("key"), **trace} for trace in traces],
        }


def line_chart(id: str, kind: Kind, curves: Sequence[tuple[Key, Line]]) -> Chart:
    """Return a chart of lines by step, with their bands."""
    last = "; ".join(
        f"{key.name} {kind.text(line.values[-1])}{_bounds(line, -1, kind)} at step {line.steps[-1]}"
        for key, line in curves
    )
    traces = [
        Trace(
            key=key,
            x=line.steps,
            y=line.values,
            low=line.low,
            high=line.high,
            text=[_bounds(line, n, kind) for n in range(len(line.steps))],
        )
        for key, line in curves
    ]
    return Chart(id, kind, Shape.lines, traces, f"Last: {last}.")


def _bounds(line: Line, n: int, kind: Kind) -> str:
    if line.low is None or line.high is None or line.low[n] is None:
        return ""
    return f" ({kind.band} {kind.text(line.low[n])} to {kind.text(line.high[n])})"


def line_key(name: str, colour: int, dash: int = 0) -> Key:
    """Return a line's style, by the number of its run and of the line within the run."""
    dash_pattern = _DASHES[dash % len(_DASHES)]
    return Key(name=name, colour=f"var(--run-{colour % N_COLOURS})", dash=dash_pattern)


def stack_chart(id: str, kind: Kind, stack: Stack, *, by_name: bool) -> Chart:
    """Return a chart of stacked bars.

    Args:
        by_name: colour parts by their name in page.css instead of their number.
    """
    traces = [
        Trace(
            key=Key(
                name=part.replace("_", " "),
                colour=f"var(--{part})" if by_name else f"var(--part-{n % N_COLOURS})",
            ),
            x=stack.steps,
            y=values,
        )
        for n, (part, values) in enumerate(stack.parts.items())
    ]
    last = ", ".join(
        f"{trace.key.name} {kind.text(values[-1])}"
        for trace, values in zip(traces, stack.parts.values(), strict=True)
    )
    return Chart(id, kind, Shape.stack, traces, f"Step {stack.steps[-1]}: {last}.")


def bar_chart(id: str, kind: Kind, sides: Mapping[str, Sequence[Bar]]) -> Chart:
    """Return a chart of bars with whiskers, a group per label and a colour per side."""
    traces = [
        Trace(
            key=Key(name=side, colour=f"var(--run-{n % N_COLOURS})"),
            x=[score.label for score in scores],
            y=[score.value for score in scores],
            low=[score.low for score in scores],
            high=[score.high for score in scores],
            text=[f" ({kind.text(score.low)} to {kind.text(score.high)})" for score in scores],
        )
        for n, (side, scores) in enumerate(sides.items())
    ]
    texts = [
        f"{score.label}: {side} {kind.text(score.value)} "
        f"({kind.text(score.low)} to {kind.text(score.high)})"
        for side, scores in sides.items()
        for score in scores
    ]
    return Chart(id, kind, Shape.bars, traces, f"{'; '.join(texts)}.")


def difference_chart(id: str, kind: Kind, differences: Sequence[Bar]) -> Chart:
    """Return a chart of differences of shares, one row each."""
    texts = [f"({one.low:+.1%} to {one.high:+.1%}), {one.note}" for one in differences]
    trace = Trace(
        key=Key(name="", colour="var(--ink)"),
        x=[one.value for one in differences],
        y=[one.label for one in differences],
        low=[one.low for one in differences],
        high=[one.high for one in differences],
        text=[f" {text}" for text in texts],
    )
    labelled = [
        f"{one.label} {one.value:+.1%} {text}" for one, text in zip(differences, texts, strict=True)
    ]
    height = 60 + 44 * len(differences)
    return Chart(id, kind, Shape.differences, [trace], f"{'; '.join(labelled)}.", height)
