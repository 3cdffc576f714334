"""Measure what a slow judge costs each training mode: `coding.mode`, with a delay before every program.

    python -m tests.soak.async_speed [sync colocate_async separate_async]     (about 6 minutes on 2 cores)

Each mode trains twice on a server behind `fault_proxy`: undisturbed, and with DELAY_S before each request
of programs. The table has the mean seconds of its steps without the first two, which fill the queue.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.metrics_log import read_metrics
from tests.soak import fault_proxy
from tests.soak.fault_proxy import Fault
from tests.soak.grpo_runs import prepare_data, start
from tests.soak.judge_faults import World

DELAY_S = 2.0
STEPS = 8
FILLING = 2
MODES = ("sync", "colocate_async", "separate_async")
OVERRIDES = [
    "experiment=quick",
    "sandbox=fusion",
    "coding.sandbox.timeout_s=30",
    f"trainer.total_training_steps={STEPS}",
]


def step_seconds(run: RunFolder) -> float:
    """Return the mean seconds of the steps after the queue is full."""
    steps = [row["timing_s/step"] for row in read_metrics(run.metrics).values()]
    return fmean(steps[FILLING:])


def train(mode: str, fault: Fault, folder: Path) -> RunFolder:
    """Train in a mode on a judge with this fault.

    Raises:
        RuntimeError: the run failed.
    """
    folder.mkdir()
    run, world = RunFolder(folder / "run"), World(folder)
    try:
        world.fail(fault, 1.0)
        own = [f"coding.mode={mode}", f"coding.sandbox.urls=[{world.url}]"]
        output = folder / "output.txt"
        if code := start(run, output, [*OVERRIDES, *own]).wait():
            raise RuntimeError(f"{mode} ended with {code}: {output.read_text()[-2000:]}")
    finally:
        world.close()
    return run


def main(modes: list[str]) -> None:
    os.environ[fault_proxy.SLOW_S] = str(DELAY_S)
    prepare_data()
    names = ("mode", "step", f"with {DELAY_S:g} s a program", "lost", "waits for rewards")
    table = Table(*names, title=f"mean seconds of steps {FILLING + 1} to {STEPS}")
    folder = Path(tempfile.mkdtemp(prefix="async-speed-"))
    for mode in modes:
        plain = train(mode, Fault.none, folder / f"{mode}_plain")
        slow = train(mode, Fault.slow, folder / f"{mode}_slow")
        rows = list(read_metrics(slow.metrics).values())[FILLING:]
        waits = fmean(row["judge/wait_s"] for row in rows)
        one, other = step_seconds(plain), step_seconds(slow)
        table.add_row(mode, f"{one:.2f}", f"{other:.2f}", f"{other - one:+.2f}", f"{waits:.2f}")
    Console().print(table)
    print(f"runs: {folder}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODES))
