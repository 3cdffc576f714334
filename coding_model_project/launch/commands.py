"""Steps that are commands which a user could run: of the pipeline and of studies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import psutil
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from coding_model_project.errors import INTERRUPTED, TrainingError
from coding_model_project.isolation.child import interrupting, start_child
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.metrics_log import read_metrics, series

LOG = "log.txt"

console = Console()


def run(command: Sequence[str]) -> None:
    """Run `python -m command`, which shows its own progress.

    Raises:
        TrainingError: the command failed; it has printed why.
        KeyboardInterrupt: the command was interrupted.
    """
    # vLLM's warnings on a CPU are known, and would drown the figures.
    with running(command, environment={"VLLM_LOGGING_LEVEL": "ERROR"}):
        pass


def train(command: Sequence[str], run_dir: Path, *, steps: int, shown: str) -> None:
    """Run a training recipe into a folder, with its output in log.txt and a progress bar.

    Args:
        command: the recipe and its overrides, without `coding.run_dir`.
        steps: the number of training steps.
        shown: the metric beside the bar.

    Raises:
        TrainingError: the recipe failed; with the last error in its log.
        KeyboardInterrupt: the recipe was interrupted.
    """
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
        Progress(*columns, console=console) as progress,
        running([*command, f"coding.run_dir={run_dir}"], run_dir / LOG) as process,
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
def running(
    command: Sequence[str],
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
    name: str = "",
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m command`, and wait for its end; this process forwards Ctrl-C to it once.

    Args:
        log: a file that its output is added to; None shows it.
        environment: variables to set unless this process has them.
        name: the step's name in errors; by default the command's first word.

    Raises:
        TrainingError: the command failed; with the last error in its log.
        KeyboardInterrupt: the command was interrupted.
    """
    with ExitStack() as stack:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        process = start_child(
            [sys.executable, "-m", *command],
            log=None if log is None else stack.enter_context(log.open("ab")),
            environment={**(environment or {}), **os.environ},
        )
        with interrupting(process):
            yield process
            code = process.wait()
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        why = "; see above" if log is None else f": {_last_words(log)} (log: {log})"
        raise TrainingError(f"{name or command[0]} {how_ended(code)}{why}")


def how_ended(code: int) -> str:
    """Return how a process that failed ended."""
    return f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    nonempty = [line.strip() for line in lines if line.strip()]
    errors = [line for line in nonempty if line.startswith("error: ")]
    return (errors or nonempty or ["no output"])[-1]


# ── memory ────────────────────────────────────────────────────────────────────────────────────────


class PeakMemory:
    """A sampler of the process tree's proportional set size, which counts shared pages once.

    It samples every 5 s, because a reading takes the kernel a tenth of a second.
    """

    def __init__(self) -> None:
        self.peak_gb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        root = psutil.Process()
        while not self._stop.wait(5.0):
            total = 0
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    total += process.memory_full_info().pss
            self.peak_gb = max(self.peak_gb, total / 2**30)
