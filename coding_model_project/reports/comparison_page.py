"""The page of a comparison: scores by side, and differences with intervals."""

from __future__ import annotations

from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison.paired import Comparison
from coding_model_project.reports.charts import Chart, Kind, bar_chart, difference_chart
from coding_model_project.reports.page import write_page
from coding_model_project.reports.page_data import Score

_DIFFERENCES = Kind(title="Difference", note="With its 95% interval; p after Holm's correction.")


def write_plot(comparison: Comparison, path: Path) -> None:
    """Write a self-contained HTML page.

    Raises:
        ConfigError: the path does not end in .html.
    """
    if path.suffix != ".html":
        raise ConfigError(f"--plot={path}: expected a .html file")
    write_page(path, f"Comparison by pass@{comparison.k}", comparison_charts(comparison))


def comparison_charts(comparison: Comparison) -> list[Chart]:
    """Return charts of the sides' scores and of the differences, with intervals."""
    sides: dict[str, dict[str, Score]] = {}
    for pair in comparison.pairs:
        for side, score in ((pair.first, pair.first_score), (pair.second, pair.second_score)):
            sides.setdefault(side, {})[pair.dataset] = Score(
                label=pair.dataset, value=score.mean, low=score.low, high=score.high
            )
    differences = [
        Score(
            label=f"{pair.dataset}: {pair.second} − {pair.first}",
            value=pair.delta,
            low=pair.low,
            high=pair.high,
            note=f"p = {pair.corrected_p:.2g} (Holm)",
        )
        for pair in comparison.pairs
    ]
    scores = Kind(title=f"pass@{comparison.k}", note="With 95% intervals.", percent=True)
    return [
        bar_chart("scores", scores, {side: list(of.values()) for side, of in sides.items()}),
        difference_chart("differences", _DIFFERENCES, differences),
    ]
