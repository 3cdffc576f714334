"""The HTML file: one that opens from disk, asks the network for nothing and runs only its own code.

Completions are hostile. They travel as compressed base64, which cannot end an element, and the page
puts them on screen as text only. A content security policy lets no script run but the page's own,
by its hash, and no request leave.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import orjson

from coding_model_project.extras import extra
from coding_model_project.reports.chart_lines import chart_lines, chart_stacks
from coding_model_project.reports.header import run_facts, run_names
from coding_model_project.reports.page_data import RunData, Samples, Written
from coding_model_project.reports.sample_columns import SampleTable
from coding_model_project.reports.sample_selection import Choice, Index, choose
from coding_model_project.reports.tally import RunTally
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.metrics_log import read_metrics
from coding_model_project.runs.rollouts import read_rollouts

BUDGET_BYTES = 16_000_000
"""Of samples' texts, before compression."""

_SCRIPTS = ("code.js", "charts.js", "samples.js", "history.js", "page.js")


def write_report(
    runs: Sequence[RunFolder], out: Path, *, budget_bytes: int = BUDGET_BYTES
) -> Written:
    """Write a page about runs, finished or not. Rollouts are read twice, one at a time.

    Args:
        runs: at least one; a folder named twice is shown once.
        out: the page, written whole or not at all; its folder is made.
        budget_bytes: how much text of samples the page may hold before compression.

    Raises:
        ConfigError: one of them is not a run's folder, or plotly is not installed.
        OSError: the page cannot be written.
    """
    with extra("report"):
        from plotly.offline import get_plotlyjs

    runs = list({run.path.resolve(): run for run in runs}.values())
    for run in runs:
        run.provenance()  # refuse what is not a run before reading any of them
    tallies, choice = _read(runs, budget_bytes)
    about = [
        _run_data(run, name, tally)
        for run, name, tally in zip(runs, run_names(runs), tallies, strict=True)
    ]
    samples = _samples(runs, tallies, choice)
    _write_page(out, about, samples, get_plotlyjs())
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


def _run_data(run: RunFolder, name: str, tally: RunTally) -> RunData:
    metrics = read_metrics(run.metrics)
    return RunData(
        name=name,
        state=str(run.state),
        facts=run_facts(run, tally, metrics),
        n_rollouts=tally.n,
        lines=chart_lines(tally, metrics, read_metrics(run.evaluations)),
        stacks=chart_stacks(tally, metrics),
    )


def _samples(runs: Sequence[RunFolder], tallies: Sequence[RunTally], choice: Choice) -> Samples:
    table = SampleTable()
    start = 0
    for number, (run, tally) in enumerate(zip(runs, tallies, strict=True)):
        # A run that goes on may have more rows by now: the first `tally.n` are those counted.
        flags = choice.shown[start : start + tally.n]
        start += tally.n
        for row, is_shown in zip(read_rollouts(run.path), flags, strict=False):
            if is_shown:
                table.add(number, row)
    return table.finish(tallies, choice)


def _write_page(out: Path, about: Sequence[RunData], samples: Samples, plotly: str) -> None:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_part("page.html"))
    scripts = [plotly, *(_part(name) for name in _SCRIPTS)]
    stream = template.stream(
        title=", ".join(run.name for run in about),
        runs=about,
        samples=samples,
        css=_part("page.css"),
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        charts_data=_packed({"runs": [asdict(run) for run in about]}),
        samples_data=_packed(samples.table),
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    stream.dump(str(partial), encoding="utf-8")
    partial.replace(out)


def _part(name: str) -> str:
    return (files(__name__.rpartition(".")[0]) / name).read_text(encoding="utf-8")


def _packed(content: Any) -> str:
    """JSON, compressed, in an alphabet that HTML gives no meaning to. NaN becomes null."""
    data = gzip.compress(orjson.dumps(content), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode()


def _hash(script: str) -> str:
    """What a content security policy names a script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
