"""`report`: one HTML page about one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    budget_mb: Annotated[
        float, typer.Option(help="Text of samples in the page, before compression.", min=0)
    ] = 16.0,
) -> None:
    """Write one page with the curves, costs and samples of runs; it opens from disk in a browser."""
    from coding_model_project.runs.folder import RunFolder
    from coding_model_project.runs.report import write_report

    written = write_report(
        [RunFolder(path) for path in runs], out, budget_bytes=int(budget_mb * 1e6)
    )
    print(
        f"{written.path}: {written.page_bytes / 1e6:.1f} MB, "
        f"{written.n_shown:,} of {written.n_total:,} samples"
    )
