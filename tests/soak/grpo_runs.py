"""Real GRPO runs for fault injection, with or without repair: start, follow and wait."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import read_all_rollouts

DATA = Path(os.environ.get("SOAK_DATA_DIR", "data/tinycode")).absolute()
PATIENCE_S = 300
PROMPTS, SAMPLES = 8, 8
"""Number of prompts of a step, and of samples per prompt."""

OVERRIDES = [
    f"coding.data_dir={DATA}",
    f"data.train_batch_size={PROMPTS}",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
    f"actor_rollout_ref.rollout.n={SAMPLES}",
    "coding.min_memory_gb=4",
]


def prepare_data() -> None:
    """Make the task set and the starting model, unless they exist."""
    if not (DATA / "base" / "config.json").exists():
        command = ["coding_model_project", "data", "prepare", "tinycode", "--base-model"]
        command += ["--out", str(DATA)]
        subprocess.run([sys.executable, "-m", *command], check=True)


def start(
    run: RunFolder, output: Path, overrides: Sequence[str], recipe: str = "grpo"
) -> subprocess.Popen[bytes]:
    """Start a run with its output in a file."""
    command = [sys.executable, "-m", f"recipes.{recipe}", f"coding.run_dir={run.path}", *OVERRIDES]
    with output.open("wb") as printed:
        return subprocess.Popen(
            [*command, *overrides], stdout=printed, stderr=printed, start_new_session=True
        )


def steps(run: RunFolder, attempt: int = 1) -> list[int]:
    """Return the steps whose samples an attempt has written."""
    rows = read_all_rollouts(run.path)
    return sorted({row.step for row in rows if row.attempt == attempt and row.split == "train"})


def wait(process: subprocess.Popen[bytes], reached: Callable[[], bool], what: str) -> None:
    """Wait until the run has reached a step.

    Raises:
        RuntimeError: it ended before, or takes too long.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{what} was not reached")
        time.sleep(0.2)
