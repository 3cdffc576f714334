"""Every chart of every page: plotly figures, made from a few frozen types.

A colour is a variable of page.css, which figures.js looks up: charts follow the reader's colour scheme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from coding_model_project.extras import extra
from coding_model_project.reports.page_data import Line, Stack

with extra("report"):
    import plotly.graph_objects as go

N_COLOURS = 8
"""page.css has so many variables for runs, and for parts; a ninth run has the first one's colour."""
N_BARS = 400
"""Beyond it bars are thinner than a pixel, and slow."""
N_MARKERS = 60
_DASHES = ("solid", "6px,4px", "2px,3px", "6px,3px,2px,3px")
"""As plotly and SVG both read them."""
_FOUR_DIGITS = Context(prec=4, rounding=ROUND_HALF_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A chart's words and its scale."""

    title: str
    note: str
    percent: bool = False
    unit: str = ""
    band: str = ""
    """The name of the interval from a line's `low` to its `high`."""
    from_zero: bool = True
    """Begin the scale at 0, not at the least value."""

    def text(self, value: float | None) -> str:
        """A value as the table and the hover label, which are JavaScript's, round it: halves go up."""
        if value is None or math.isnan(value):
            return "–"
        if self.percent:
            return f"{Decimal(100 * value).quantize(Decimal('0.1'), ROUND_HALF_UP)}%"
        return f"{_FOUR_DIGITS.create_decimal_from_float(float(value)).normalize():,f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A colour's meaning, for the legend."""

    name: str
    colour: str
    dash: str = ""
    """Of a line; empty for an area."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure and the words around it."""

    id: str
    """Unique in a page."""
    kind: Kind
    figure: go.Figure
    caption: str = ""
    keys: Sequence[Key] = ()
    height: int = 260
    """Pixels."""
    by_step: bool = True
    """Its values are also a table; a chart by anything else says all of them in its caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line and its looks."""

    line: Line
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A value with its interval."""

    label: str
    value: float
    low: float
    high: float
    note: str = ""
    """For the hover label and the caption."""


def line_chart(id: str, kind: Kind, curves: Sequence[Curve]) -> Chart:
    """Lines by step, with the band of each that has one."""
    last = "; ".join(
        f"{curve.key.name} {kind.text(curve.line.values[-1])}{_bounds(curve.line, -1, kind)} "
        f"at step {curve.line.steps[-1]}"
        for curve in curves
    )
    traces = [trace for curve in curves for trace in _line_traces(curve, kind)]
    keys = [curve.key for curve in curves]
    figure = go.Figure(traces, _layout(kind))
    return Chart(id=id, kind=kind, figure=figure, caption=f"Last: {last}.", keys=keys)


def _line_traces(curve: Curve, kind: Kind) -> Iterator[go.Scatter]:
    line, key = curve.line, curve.key
    bounds = [_bounds(line, n, kind) for n in range(len(line.steps))]
    if line.low is not None and line.high is not None:
        known = [n for n, text in enumerate(bounds) if text]
        back = known[::-1]
        yield go.Scatter(
            x=[line.steps[n] for n in known + back],
            y=[line.high[n] for n in known] + [line.low[n] for n in back],
            mode="lines", line={"width": 0}, fill="toself", fillcolor=key.colour, opacity=0.18,
            hoverinfo="skip",
        )  # fmt: skip
    yield _line_trace(
        key,
        x=line.steps,
        y=line.values,
        mode="lines" if len(line.steps) > N_MARKERS else "lines+markers",
        text=bounds if any(bounds) else None,
        hovertemplate="%{y}%{text}" if any(bounds) else "%{y}",
    )


def _line_trace(key: Key, **options: Any) -> go.Scatter:
    looks = {"marker": {"size": 4}, "line": {"color": key.colour, "width": 2, "dash": key.dash}}
    return go.Scatter({**_named(key.name), **looks, **options})


def _bounds(line: Line, n: int, kind: Kind) -> str:
    if line.low is None or line.high is None or line.low[n] is None:
        return ""
    return f" ({kind.band} {kind.text(line.low[n])} to {kind.text(line.high[n])})"


def line_key(name: str, colour: int, dash: int = 0) -> Key:
    """The looks of a line, by the number of its run and of the line in it."""
    dash_pattern = _DASHES[dash % len(_DASHES)]
    return Key(name=name, colour=f"var(--run-{colour % N_COLOURS})", dash=dash_pattern)


def history_chart(id: str, kind: Kind, samples: Sequence[tuple[Key, Mapping[str, Any]]]) -> Chart:
    """Shares by step that the page fills in: a trace's `meta` says which samples are its."""
    traces = [
        _line_trace(key, mode="lines+markers", marker={"size": 6}, meta=meta)
        for key, meta in samples
    ]
    figure = go.Figure(traces, _layout(kind)).update_yaxes(range=[-0.05, 1.05])
    return Chart(id=id, kind=kind, figure=figure, keys=[key for key, _ in samples], height=200)


def stack_chart(id: str, kind: Kind, stack: Stack, *, by_name: bool) -> Chart:
    """Bars, or areas where bars would be too many.

    Args:
        by_name: page.css has a colour for each part by its name, not by its number.
    """
    keys = [
        Key(
            name=part.replace("_", " "),
            colour=f"var(--{part})" if by_name else f"var(--part-{n % N_COLOURS})",
        )
        for n, part in enumerate(stack.parts)
    ]
    traces = [
        go.Bar(
            **_named(key.name), x=stack.steps, y=values,
            marker={"color": key.colour, "line": {"width": 0}},
        )
        if len(stack.steps) <= N_BARS
        else go.Scatter(
            **_named(key.name), x=stack.steps, y=values,
            mode="lines", stackgroup="all", line={"width": 0}, fillcolor=key.colour,
        )
        for key, values in zip(keys, stack.parts.values(), strict=True)
    ]  # fmt: skip
    last = ", ".join(
        f"{key.name} {kind.text(values[-1])}"
        for key, values in zip(keys, stack.parts.values(), strict=True)
    )
    caption = f"Step {stack.steps[-1]}: {last}."
    figure = go.Figure(traces, _layout(kind))
    return Chart(id=id, kind=kind, figure=figure, caption=caption, keys=keys)


def bar_chart(id: str, kind: Kind, sides: Mapping[str, Sequence[Score]]) -> Chart:
    """Bars with whiskers, a group for each label and a colour for each side."""
    keys = [Key(name=side, colour=f"var(--run-{n % N_COLOURS})") for n, side in enumerate(sides)]
    traces = [
        go.Bar(
            **_named(key.name),
            x=[_plain(score.label) for score in scores],
            y=[score.value for score in scores],
            error_y=_whiskers(scores),
            marker={"color": key.colour, "line": {"width": 0}},
        )
        for key, scores in zip(keys, sides.values(), strict=True)
    ]
    figure = go.Figure(traces, _layout(kind)).update_layout(barmode="group", bargap=0.3)
    figure.update_xaxes(type="category", title="", unifiedhovertitle={"text": "%{x}"})
    said = [
        f"{score.label}: {side} {kind.text(score.value)} "
        f"({kind.text(score.low)} to {kind.text(score.high)})"
        for side, scores in sides.items()
        for score in scores
    ]
    caption = f"{'; '.join(said)}."
    return Chart(id=id, kind=kind, figure=figure, caption=caption, keys=keys, by_step=False)


def difference_chart(id: str, kind: Kind, differences: Sequence[Score]) -> Chart:
    """A row for each difference of shares, around zero."""
    trace = go.Scatter(
        x=[one.value for one in differences],
        y=[_plain(one.label) for one in differences],
        mode="markers",
        marker={"size": 10, "color": "var(--ink)"},
        error_x=_whiskers(differences),
        text=[one.note for one in differences],
        hovertemplate="%{x}, %{text}<extra>%{y}</extra>",
    )
    figure = go.Figure(trace, _layout(kind)).update_layout(hovermode="closest")
    figure.update_xaxes(title="", tickformat="+.0%", hoverformat="+.1%")
    figure.update_yaxes(type="category", range=[len(differences) - 0.5, -0.5])
    figure.add_vline(x=0, line={"dash": "dot", "color": "var(--soft)", "width": 1})
    said = [
        f"{one.label} {one.value:+.1%} ({one.low:+.1%} to {one.high:+.1%}), {one.note}"
        for one in differences
    ]
    caption, height = f"{'; '.join(said)}.", 120 + 40 * len(differences)
    return Chart(id=id, kind=kind, figure=figure, caption=caption, height=height, by_step=False)


def _whiskers(scores: Sequence[Score]) -> dict[str, object]:
    """Error bars, which need not be symmetric."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [score.high - score.value for score in scores],
        "arrayminus": [score.value - score.low for score in scores],
        "color": "var(--ink)",
        "thickness": 1.5,
    }


def _named(name: str) -> dict[str, str]:
    """A trace's name, and in `meta` as the table of values shows it."""
    return {"name": _plain(name), "meta": name}


def _plain(text: str) -> str:
    """Text of others: plotly reads some HTML."""
    return html.escape(text, quote=False)


def _layout(kind: Kind) -> go.Layout:
    rule = "var(--rule)"
    axis = {
        "gridcolor": "var(--grid)",
        "linecolor": rule,
        "zerolinecolor": rule,
        "automargin": True,
    }
    return go.Layout(
        template=go.layout.Template(),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, DejaVu Sans, sans-serif", "size": 12, "color": "var(--soft)"},
        margin={"l": 48, "r": 10, "t": 10, "b": 36},
        hovermode="x unified",
        hoverlabel={"bgcolor": "var(--raised)", "bordercolor": "var(--rule)", "font_color": "var(--ink)"},
        xaxis={
            **axis, "title": {"text": "step", "standoff": 4}, "tickformat": ",d", "hoverformat": ",d",
            "unifiedhovertitle": {"text": "step %{x}"},
        },
        yaxis={
            **axis, "title": {"text": kind.unit, "standoff": 6},
            "rangemode": "tozero" if kind.from_zero else "normal",
            "tickformat": "~%" if kind.percent else "", "hoverformat": ".1%" if kind.percent else ".4~g",
        },
        barmode="stack", bargap=0, showlegend=False,
    )  # fmt: skip
