"""A comparison as a page with two charts: scores by side, and differences with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison.paired import Comparison, Score
from coding_model_project.extras import extra

with extra("report"):
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots


def write_plot(comparison: Comparison, path: Path) -> None:
    """Write a page that opens from disk, without a network.

    Raises:
        ConfigError: the file is not to be a page.
    """
    if path.suffix != ".html":
        raise ConfigError(f"--plot={path}: charts are written as a page; name it .html")
    path.parent.mkdir(parents=True, exist_ok=True)
    charts(comparison).write_html(path, include_plotlyjs=True)


def charts(comparison: Comparison) -> go.Figure:
    """Bars of the sides' scores, and below them the differences."""
    figure = make_subplots(
        rows=2, cols=1,
        subplot_titles=(f"pass@{comparison.k}", "difference, with its 95% interval"),
        vertical_spacing=0.15,
    )  # fmt: skip
    for side, scores in _scores(comparison).items():
        figure.add_trace(_bars(side, scores), row=1, col=1)
    pairs = comparison.pairs
    labels = [f"{pair.dataset}: {pair.second} − {pair.first}" for pair in pairs]
    figure.add_trace(
        go.Scatter(
            x=[pair.delta for pair in pairs],
            y=labels,
            mode="markers",
            marker={"size": 10, "color": "black"},
            error_x=_whiskers([(pair.low, pair.delta, pair.high) for pair in pairs]),
            text=[f"p = {pair.corrected_p:.2g} (Holm)" for pair in pairs],
            showlegend=False,
        ),
        row=2,
        col=1,
    )
    figure.add_vline(x=0, line_dash="dot", row=2, col=1)  # type: ignore[arg-type]
    figure.update_yaxes(tickformat=".0%", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(tickformat="+.0%", row=2, col=1)
    figure.update_layout(template="plotly_white", barmode="group", height=420 + 40 * len(pairs))
    return figure


def _scores(comparison: Comparison) -> dict[str, dict[str, Score]]:
    """By side, then data set."""
    scores: dict[str, dict[str, Score]] = {}
    for pair in comparison.pairs:
        scores.setdefault(pair.first, {})[pair.dataset] = pair.first_score
        scores.setdefault(pair.second, {})[pair.dataset] = pair.second_score
    return scores


def _bars(side: str, scores: dict[str, Score]) -> go.Bar:
    bounds = [(score.low, score.mean, score.high) for score in scores.values()]
    return go.Bar(
        name=side,
        x=list(scores),
        y=[score.mean for score in scores.values()],
        error_y=_whiskers(bounds),
    )


def _whiskers(bounds: Sequence[tuple[float, float, float]]) -> dict[str, object]:
    """Error bars from (low, middle, high), which need not be symmetric."""
    return {
        "type": "data",
        "array": [high - middle for _, middle, high in bounds],
        "arrayminus": [middle - low for low, middle, _ in bounds],
    }
