"""Measure what a slow judge costs each training mode: `coding.mode`, with a delay before every program.

    python -m tests.soak.async_speed [sync colocate_async separate_async]   (8 minutes on 2 cores)

Each mode trains twice: as is, and with DELAY_S before each program. All programs of a step wait at once:
no mode helps if the judge has fewer places than that. Asynchronous modes request AHEAD batches ahead: in
`colocate_async` generation pauses during training. The table has the mean seconds of the steps without
the first two, which fill the queue.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.metrics_log import read_metrics
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


def train(mode: str, delay_s: float, folder: Path) -> RunFolder:
    """Train in a mode on a judge with this delay.

    Raises:
        RuntimeError: the run failed.
    """
    folder.mkdir()
    run, output = RunFolder(folder / "run"), folder / "output.txt"
    own = [f"coding.mode={mode}", f"+coding.sandbox.kwargs.delay_s={delay_s}"]
    if mode != "sync":
        own += [f"coding.max_staleness={AHEAD}", f"trainer.v1.{mode}.num_warmup_batches={AHEAD}"]
    if code := start(run, output, [*OVERRIDES, *own]).wait():
        raise RuntimeError(f"{mode} ended with {code}: {output.read_text()[-2000:]}")
    return run


def main(modes: list[str]) -> None:
    prepare_data()
    names = ("mode", "step", f"with {DELAY_S:g} s a program", "lost", "waits for rewards")
    table = Table(*names, title=f"mean seconds of steps {FILLING + 1} to {STEPS}")
    folder = Path(tempfile.mkdtemp(prefix="async-speed-"))
    for mode in modes:
        plain = train(mode, 0, folder / f"{mode}_plain")
        slow = train(mode, DELAY_S, folder / f"{mode}_slow")
        rows = list(read_metrics(slow.metrics).values())[FILLING:]
        waits = fmean(row["judge/wait_s"] for row in rows)
        one, other = step_seconds(plain), step_seconds(slow)
        table.add_row(mode, f"{one:.2f}", f"{other:.2f}", f"{other - one:+.2f}", f"{waits:.2f}")
    Console().print(table)
    print(f"runs: {folder}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODES))
