"""Phases made of commands that a user could run: the demo's and the pipeline's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from coding_model_project.errors import INTERRUPTED, UngradableError
from coding_model_project.isolation.child import interrupting, start_child
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.metrics_log import read_metrics, series

LOG = "log.txt"
_LOG_TAIL = 20

console = Console()


def run(command: Sequence[str]) -> None:
    """Run `python -m command`, which shows its own progress.

    Raises:
        UngradableError: the command failed; it has printed why.
        KeyboardInterrupt: the command was interrupted.
    """
    # vLLM's warnings on a CPU are known, and would drown the figures.
    with _process(command, environment={"VLLM_LOGGING_LEVEL": "ERROR"}) as process:
        process.wait()


def train(command: Sequence[str], run_dir: Path, *, steps: int, shown: str) -> None:
    """Run a training recipe into a folder, with its output in log.txt and a progress bar.

    Args:
        command: the recipe and its overrides, without `coding.run_dir`.
        steps: the number of training steps.
        shown: the metric beside the bar.

    Raises:
        UngradableError: the recipe failed; the last lines of its log are shown.
        KeyboardInterrupt: the recipe was interrupted.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    name = command[0].rpartition(".")[2]
    columns = (
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console.print(f"log: {run_dir / LOG}")
    with (
        (run_dir / LOG).open("ab") as log,
        Progress(*columns, console=console) as progress,
        _process([*command, f"coding.run_dir={run_dir}"], log) as process,
    ):
        bar = progress.add_task(name, total=steps, note="starting")
        while process.poll() is None:
            time.sleep(0.5)
            if logged := logged_series(run_dir, shown):
                step, value = logged[-1]
                progress.update(bar, completed=step, note=f"{shown} {value:.3f}")


def logged_series(run_dir: Path, metric: str) -> list[tuple[int, float]]:
    """Return a metric of a run as (step, value) pairs."""
    return series(read_metrics(RunFolder(run_dir).metrics), metric)


@contextmanager
def timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Print a phase's headline, and record its wall seconds under its name."""
    console.rule(f"[bold]{name}")
    started = time.monotonic()
    yield
    seconds[name] = time.monotonic() - started


@contextmanager
def _process(
    command: Sequence[str], log: Any = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m command`; this process forwards Ctrl-C to it once.

    Args:
        environment: variables to set unless this process has them.
    """
    process = start_child(
        [sys.executable, "-m", *command], log=log, environment={**(environment or {}), **os.environ}
    )
    with interrupting(process):
        yield process
    if process.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if process.returncode:
        if log:
            with Path(log.name).open(errors="replace") as lines:
                sys.stderr.writelines(deque(lines, _LOG_TAIL))
        raise UngradableError(f"{command[0]} failed with exit code {process.returncode}; see above")
