"""`report`: one HTML page about one run or several, or a live view of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import FreePort, local_runs, publishes
from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra

if TYPE_CHECKING:
    from coding_model_project.runs.folder import RunFolder

_FOLLOW_S = 10.0
"""Seconds between two looks at runs behind URLs."""
MOST_RUNS = 12
"""Runs of one folder in a page: more cannot be told apart in its charts."""


@publishes
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Runs' folders, folders that hold runs, or their URLs.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("report.html"),
    budget_mb: Annotated[
        float, typer.Option(help="Hold at most N MB of samples' text, uncompressed.", min=0)
    ] = 16.0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve all samples to this machine's browsers, live.")
    ] = False,
    port: FreePort = 0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show what is written meanwhile; with --serve.")
    ] = False,
) -> None:
    """Write one page with the curves, costs and samples of runs; it opens from disk in a browser.

    Of a folder that is no run but holds some, all runs below it are shown, up to a dozen.

    With --serve no page is written: until Ctrl-C, the address that is printed shows the runs, and every
    sample, at any size.
    """
    if follow and not serve:
        raise ConfigError("report: --follow goes with --serve")
    with local_runs(runs, every_s=_FOLLOW_S if follow else None) as (folders, shown):
        chosen = _runs(folders, shown)
        if serve:
            _serve(chosen, port, follow=follow)
            return
        _write(chosen, out, budget_mb)


def _write(chosen: Sequence[RunFolder], out: Path, budget_mb: float) -> None:
    from coding_model_project.reports import write_report

    written = write_report(chosen, out, budget_bytes=int(budget_mb * 1e6))
    print(
        f"{written.path}: {written.page_bytes / 1e6:.1f} MB, "
        f"{written.n_shown:,} of {written.n_total:,} samples"
    )


def _runs(paths: Sequence[Path], shown: Callable[[Path], str]) -> list[RunFolder]:
    from coding_model_project.runs.folder import runs_at

    chosen = []
    for path in paths:
        found = runs_at(path)
        names = ", ".join(shown(run.path) for run in found[:MOST_RUNS])
        if len(found) > MOST_RUNS:
            raise ConfigError(
                f"{shown(path)} holds {len(found)} runs, more than the {MOST_RUNS} of one page; "
                f"name some: {names}, …"
            )
        if [run.path for run in found] != [path]:
            print(f"{shown(path)} holds {names}", file=sys.stderr)
        chosen += found
    return chosen


def _serve(runs: Sequence[RunFolder], port: int, *, follow: bool) -> None:
    """Serve until Ctrl-C.

    Raises:
        ConfigError: there are no samples and none are waited for, or the port is taken.
    """
    import secrets
    from contextlib import nullcontext, suppress

    with extra("serve"):
        from coding_model_project.reports.live.app import HOST, create_app
        from coding_model_project.server import listening
    from coding_model_project.reports.live.live_runs import LiveRuns

    try:
        sock = listening.listen(HOST, port)
    except OSError as error:
        raise ConfigError(f"--port={port}: {error}; choose another one, or 0") from error
    with sock:
        live = LiveRuns(runs)
        n = live.index.n
        if not n and not follow:
            raise ConfigError(
                f"{', '.join(live.names)}: no samples are recorded; add --follow to wait for them, "
                "or leave out --serve to see the curves"
            )
        token = secrets.token_urlsafe()
        url = f"http://{HOST}:{sock.getsockname()[1]}/?token={token}"

        def started() -> None:
            print(f"{n:,} samples at {url}; Ctrl-C ends it", flush=True)

        with suppress(KeyboardInterrupt):
            listening.serve(create_app(live, token, follow=follow), nullcontext(), sock, started)
