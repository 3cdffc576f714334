"""The `report` command: an HTML page about one or more runs, or a live view of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coding_model_project.cli import options
from coding_model_project.cli.common import local_runs, publishes
from coding_model_project.config_key import argument, option
from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra

if TYPE_CHECKING:
    from coding_model_project.runs.folder import RunFolder

_FOLLOW_S = 10.0
"""Seconds between polls of runs behind URLs."""
MOST_RUNS = 12
"""Maximum runs of one folder on a page; charts with more are unreadable."""


@publishes
def report(
    runs: list[Path] = argument(
        ..., "Folders of runs, folders that contain runs, or URLs of mirrored runs.", metavar="RUN"
    ),
    out: Path = option(Path("report.html"), "Write the page to this file."),
    budget_mb: float = option(16.0, "Include at most N MB of samples' text, uncompressed.", min=0),
    serve: bool = option(False, "Serve a live view of all samples to this machine's browsers."),
    port: options.FreePort = 0,
    follow: bool = option(False, "Show new data as it is written; with --serve."),
) -> None:
    """Write one self-contained HTML page with the curves, costs and samples of runs.

    A folder that contains runs stands for all runs below it, up to 12.

    With --serve no page is written: the printed address shows the runs and every sample, whatever
    their size, until Ctrl-C.
    """
    if follow and not serve:
        raise ConfigError("report: --follow needs --serve")
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
                f"{shown(path)} holds {len(found)} runs, and a page shows at most {MOST_RUNS}; "
                f"pass some of them: {names}, …"
            )
        if [run.path for run in found] != [path]:
            print(f"{shown(path)} holds {names}", file=sys.stderr)
        chosen += found
    return chosen


def _serve(runs: Sequence[RunFolder], port: int, *, follow: bool) -> None:
    """Serve until Ctrl-C.

    Raises:
        ConfigError: there are no samples and `follow` is false, or the port is taken.
    """
    import secrets
    from contextlib import nullcontext, suppress

    with extra("serve"):
        from coding_model_project.reports.live import HOST, create_app
        from coding_model_project.server import listening
    from coding_model_project.reports.live import LiveRuns

    with listening.listen(HOST, port) as sock:
        live = LiveRuns(runs)
        n = live.index.n
        if not n and not follow:
            raise ConfigError(
                f"{', '.join(live.names)}: no recorded samples; add --follow to wait for them, "
                "or omit --serve to see the curves"
            )
        token = secrets.token_urlsafe()
        url = f"http://{HOST}:{sock.getsockname()[1]}/?token={token}"

        def started() -> None:
            print(f"{n:,} samples at {url}; stop with Ctrl-C", flush=True)

        with suppress(KeyboardInterrupt):
            listening.serve(create_app(live, token, follow=follow), nullcontext(), sock, started)
