"""The page about runs, with their curves, costs and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coding_model_project.evaluation.results import METRICS
from coding_model_project.evaluation.results import read_metrics as read_metrics_of
from coding_model_project.reports.chart_lines import chart_lines, chart_stacks
from coding_model_project.reports.header import run_facts, run_names
from coding_model_project.reports.page import write_page
from coding_model_project.reports.page_data import Line, RunData, Samples, Score, Written
from coding_model_project.reports.run_charts import run_charts
from coding_model_project.reports.sample_columns import SampleTable
from coding_model_project.reports.sample_selection import Choice, Index, choose
from coding_model_project.reports.tally import RunTally
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.metrics_log import read_metrics
from coding_model_project.runs.rollouts import read_rollouts

BUDGET_BYTES = 16_000_000
"""Maximum bytes of samples' texts, before compression."""

_SCRIPTS = ("code.js", "timeline.js", "sample_view.js", "samples.js", "history.js")


def write_report(
    runs: Sequence[RunFolder],
    out: Path,
    *,
    budget_bytes: int = BUDGET_BYTES,
    arms: Sequence[Line] = (),
) -> Written:
    """Write a page about finished or running runs. Streams the rollouts twice.

    Args:
        runs: at least one run; duplicates are removed.
        out: path of the page, which is written atomically; its folder is created.
        budget_bytes: maximum bytes of samples' texts, before compression.
        arms: accepted shares of a study's arms, with bands over seeds.

    Raises:
        ConfigError: a folder is not a run's.
        OSError: the page cannot be written.
    """
    runs = list({run.path.resolve(): run for run in runs}.values())
    for run in runs:
        run.provenance()  # raises for other folders before any run is read
    tallies, choice = _read(runs, budget_bytes)
    about = [
        run_data(run, name, tally)
        for run, name, tally in zip(runs, run_names(runs), tallies, strict=True)
    ]
    names = [run.name for run in about]
    samples = _samples(runs, names, tallies, choice)
    splits = list(dict.fromkeys(split for tally in tallies for split in tally.splits))
    charts = run_charts(about, splits, arms)
    write_page(
        out,
        ", ".join(names),
        [*(chart for row in charts.rows for chart in row), charts.history],
        template=Path(__file__).with_name("run.html"),
        scripts=_SCRIPTS,
        data={"samples": samples.table},
        runs=about,
        samples=samples,
        rows=charts.rows,
        missing=charts.missing,
        history=charts.history,
    )
    return Written(
        path=out,
        page_bytes=out.stat().st_size,
        n_shown=samples.n_shown,
        n_total=samples.n_total,
    )


def _read(runs: Sequence[RunFolder], budget_bytes: int) -> tuple[list[RunTally], Choice]:
    tallies: list[RunTally] = []
    index = Index()
    for number, run in enumerate(runs):
        tally = RunTally()
        for row in read_rollouts(run.path):
            tally.add(row)
            index.add(number, row)
        tallies.append(tally)
    return tallies, choose(index, budget_bytes)


def run_data(run: RunFolder, name: str, tally: RunTally) -> RunData:
    """Read the data of a run, given the tally of its samples."""
    metrics = read_metrics(run.metrics)
    scores = _scores(run)  # of an evaluation, which has no steps to draw lines over
    lines = {} if scores else chart_lines(tally, metrics, read_metrics(run.evaluations))
    return RunData(
        name=name,
        state=str(run.state),
        facts=run_facts(run, tally, metrics, lines),
        n_rollouts=tally.n,
        lines=lines,
        stacks={} if scores else chart_stacks(tally, metrics),
        scores=scores,
    )


def _scores(run: RunFolder) -> dict[str, dict[str, list[Score]]]:
    """Return a finished evaluation's rates by chart and data set."""
    if not (run.path / METRICS).exists():
        return {}
    found: dict[str, dict[str, list[Score]]] = {"pass_at_k": {}, "months": {}}
    for name, metrics in read_metrics_of(run.path).items():
        rates = {f"pass@{k}": rate for k, rate in metrics["pass@k"].items()}
        found["pass_at_k"][name] = _bars(rates)
        cutoff = metrics.get("cutoff", {}).get("day", "")
        if by_month := metrics.get("by_month"):
            months = {
                f"{month}, cut-off" if cutoff.startswith(month) else month: rates["1"]
                for month, rates in by_month.items()
            }
            found["months"][name] = _bars(months)
    return found


def _bars(rates: Mapping[str, Mapping[str, float]]) -> list[Score]:
    return [
        Score(label=label, value=rate["value"], low=rate["low"], high=rate["high"])
        for label, rate in rates.items()
    ]


def _samples(
    runs: Sequence[RunFolder], names: Sequence[str], tallies: Sequence[RunTally], choice: Choice
) -> Samples:
    table = SampleTable()
    start = 0
    for number, (run, tally) in enumerate(zip(runs, tallies, strict=True)):
        # A running run may have more rows by now; only the first `tally.n` were counted.
        flags = choice.shown[start : start + tally.n]
        start += tally.n
        for row, is_shown in zip(read_rollouts(run.path), flags, strict=False):
            if is_shown:
                table.add(number, row)
    return table.finish(names, tallies, choice)
