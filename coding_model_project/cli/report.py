"""`report`: one HTML page about one run or several."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.errors import ConfigError

MOST_RUNS = 12
"""Runs of one folder in a page: more cannot be told apart in its charts."""


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Runs' folders, or folders that hold runs.")
    ],
    out: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("report.html"),
    budget_mb: Annotated[
        float, typer.Option(help="Hold at most N MB of samples' text, uncompressed.", min=0)
    ] = 16.0,
) -> None:
    """Write one page with the curves, costs and samples of runs; it opens from disk in a browser.

    Of a folder that is no run but holds some, all runs below it are shown, up to a dozen.
    """
    from coding_model_project.reports import write_report
    from coding_model_project.runs.folder import runs_at

    chosen = []
    for path in runs:
        found = runs_at(path)
        names = ", ".join(str(run.path) for run in found[:MOST_RUNS])
        if len(found) > MOST_RUNS:
            raise ConfigError(
                f"{path} holds {len(found)} runs, more than the {MOST_RUNS} of one page; name some: "
                f"{names}, …"
            )
        if [run.path for run in found] != [path]:
            print(f"{path} holds {names}", file=sys.stderr)
        chosen += found
    written = write_report(chosen, out, budget_bytes=int(budget_mb * 1e6))
    print(
        f"{written.path}: {written.page_bytes / 1e6:.1f} MB, "
        f"{written.n_shown:,} of {written.n_total:,} samples"
    )
