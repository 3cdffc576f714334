"""Measure what slow episodes cost each training mode: `coding.mode`, with the bash agent.

    python -m tests.soak.async_episodes [sync colocate_async separate_async]   (8 minutes on 2 cores)

Each step trains on four tasks with four episodes each. Each mode trains twice: as is, and with a task
whose verifier takes SLOW_S longer. The table has the mean seconds of its steps without the first two,
which fill the queue, and the share of the slow task's episodes among the trained ones.
"""

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import read_all_rollouts
from tests.end_to_end.shell_world import taught_model
from tests.end_to_end.test_harbor_training import prepared
from tests.soak.async_speed import compare, finished

SLOW_S = 20
SLOW_TASK = "0"
STEPS = 10
MAX_STALENESS = 4


def slow_down(verifier: Path) -> None:
    """Make a task's verifier wait before it looks."""
    first, _, rest = verifier.read_text().partition("\n")
    verifier.write_text(f"{first}\nsleep {SLOW_S}\n{rest}")


def train(model: Path, mode: str, folder: Path, slow: bool) -> RunFolder:
    """Train a model in a mode, with a slow task or not."""
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
        process = subprocess.Popen(command, stdout=printed, stderr=printed)
    return finished(RunFolder(folder / "run"), output, process)


def slow_share(run: RunFolder) -> str:
    """Return the slow task's share of the trained episodes."""
    rows = [row for row in read_all_rollouts(run.path) if row.split == "train"]
    share = sum(row.problem.rpartition("/")[2] == SLOW_TASK for row in rows) / len(rows)
    return f"{share:.0%}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        taught_model(Path(place, "model"))
        taught = partial(train, Path(place, "model"))
        slow = f"an episode of {SLOW_S} s"
        compare(sys.argv[1:], taught, slow, "its task's share", slow_share)
