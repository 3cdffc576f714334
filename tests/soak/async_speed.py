"""Measure what a slow judge costs each training mode: `coding.mode`, with a delay before every program.

    python -m tests.soak.async_speed [sync colocate_async separate_async]   (8 minutes on 2 cores)

Each mode trains twice: as is, and with DELAY_S before each program. All programs of a step wait at once:
no mode helps if the judge has fewer places than that. Asynchronous modes request AHEAD batches ahead: in
`colocate_async` generation pauses during training. The table has the mean seconds of the steps without
the first two, which fill the queue.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import read_metrics
from tests.soak.grpo_runs import prepare_data, start

DELAY_S = 2.0
AHEAD = 2
STEPS = 8
FILLING = 2
MODES = ("sync", "colocate_async", "separate_async")
OVERRIDES = [
    "experiment=quick",
    "coding.sandbox.name=tests.faults:Slow",
    "coding.sandbox.workers=512",
    f"trainer.total_training_steps={STEPS}",
]


def step_seconds(run: RunFolder) -> float:
    """Return the mean seconds of the steps after the queue is full."""
    steps = [row["timing_s/step"] for row in read_metrics(run.metrics).values()]
    return fmean(steps[FILLING:])


def finished(run: RunFolder, output: Path, process: subprocess.Popen[bytes]) -> RunFolder:
    """Wait for a run.

    Raises:
        RuntimeError: it failed.
    """
    if code := process.wait():
        raise RuntimeError(f"{run.path} ended with {code}: {output.read_text()[-2000:]}")
    return run


def compare(
    modes: Sequence[str],
    train: Callable[[str, Path, bool], RunFolder],
    slow: str,
    last: str,
    of: Callable[[RunFolder], str],
) -> None:
    """Train in each mode as is and slowed down, and print a table.

    Args:
        train: by mode, new folder, and whether it is slowed down.
        slow: what slows it down.
        last: the title of the last column, which `of` gives for a slow run.
    """
    title = f"mean seconds of steps {FILLING + 1} and later"
    table = Table("mode", "step", f"with {slow}", "lost", last, title=title)
    folder = Path(tempfile.mkdtemp(prefix="async-"))
    for mode in modes or MODES:
        runs = []
        for name in ("plain", "slow"):
            (folder / f"{mode}_{name}").mkdir()
            runs.append(train(mode, folder / f"{mode}_{name}", name == "slow"))
        one, other = map(step_seconds, runs)
        table.add_row(mode, f"{one:.2f}", f"{other:.2f}", f"{other - one:+.2f}", of(runs[1]))
    Console().print(table)
    print(f"runs: {folder}")


def train(mode: str, folder: Path, slow: bool) -> RunFolder:
    """Train in a mode on a judge that is slow or not."""
    run, output = RunFolder(folder / "run"), folder / "output.txt"
    own = [f"coding.mode={mode}", f"+coding.sandbox.kwargs.delay_s={DELAY_S if slow else 0}"]
    if mode != "sync":
        own += [f"coding.max_staleness={AHEAD}", f"trainer.v1.{mode}.num_warmup_batches={AHEAD}"]
    return finished(run, output, start(run, output, [*OVERRIDES, *own]))


def waits(run: RunFolder) -> str:
    """Return the mean seconds for which steps waited for rewards."""
    rows = list(read_metrics(run.metrics).values())[FILLING:]
    return f"{fmean(row['judge/wait_s'] for row in rows):.2f}"


if __name__ == "__main__":
    prepare_data()
    compare(sys.argv[1:], train, f"{DELAY_S:g} s a program", "waits for rewards", waits)
