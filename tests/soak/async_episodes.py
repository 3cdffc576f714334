"""Measure what slow episodes cost each training mode: `coding.mode`, with the bash agent.

    python -m tests.soak.async_episodes [sync colocate_async separate_async]   (8 minutes on 2 cores)

Each step trains on four tasks with four episodes each. Each mode trains twice: as is, and with a task
whose verifier takes SLOW_S longer. The table has the mean seconds of its steps without the first two,
which fill the queue, and the share of the slow task's episodes among the trained ones.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import read_all_rollouts
from tests.end_to_end.shell_world import taught_model
from tests.end_to_end.test_harbor_training import prepared
from tests.soak.async_speed import FILLING, MODES, step_seconds

SLOW_S = 20
SLOW_TASK = "0"
STEPS = 10
MAX_STALENESS = 4


def slow_down(verifier: Path) -> None:
    """Make a task's verifier wait before it looks."""
    first, _, rest = verifier.read_text().partition("\n")
    verifier.write_text(f"{first}\nsleep {SLOW_S}\n{rest}")


def train(mode: str, folder: Path, model: Path, *, slow: bool) -> RunFolder:
    """Train in a mode.

    Raises:
        RuntimeError: the run failed.
    """
    folder.mkdir()
    overrides = prepared(folder)
    if slow:
        slow_down(folder / "tasks" / SLOW_TASK / "tests" / "test.sh")
    overrides += [
        f"actor_rollout_ref.model.path={model}",
        f"coding.mode={mode}",
        "coding.bash.rooms=64",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.total_epochs={STEPS}",
    ]
    if mode != "sync":
        overrides.append(f"coding.max_staleness={MAX_STALENESS}")
    output = folder / "output.txt"
    with output.open("wb") as printed:
        command = [sys.executable, "-m", "recipes.harbor", *overrides]
        done = subprocess.run(command, stdout=printed, stderr=printed, check=False)
    if done.returncode:
        raise RuntimeError(f"{mode} ended with {done.returncode}: {output.read_text()[-2000:]}")
    return RunFolder(folder / "run")


def slow_share(run: RunFolder) -> float:
    """Return the slow task's share of the trained episodes."""
    rows = [row for row in read_all_rollouts(run.path) if row.split == "train"]
    return sum(row.problem.rpartition("/")[2] == SLOW_TASK for row in rows) / len(rows)


def main(modes: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="async-episodes-"))
    taught_model(folder / "model")
    names = ("mode", "step", f"with an episode of {SLOW_S} s", "lost", "its task's share")
    table = Table(*names, title=f"mean seconds of steps {FILLING + 1} to {STEPS}")
    for mode in modes:
        plain = train(mode, folder / f"{mode}_plain", folder / "model", slow=False)
        slow = train(mode, folder / f"{mode}_slow", folder / "model", slow=True)
        one, other = step_seconds(plain), step_seconds(slow)
        share = f"{slow_share(slow):.0%}"
        table.add_row(mode, f"{one:.2f}", f"{other:.2f}", f"{other - one:+.2f}", share)
    Console().print(table)
    print(f"runs: {folder}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODES))
