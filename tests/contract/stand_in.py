"""A recipe that trains nothing, for jobs: a run's folder, steps, checkpoints, and an answer to SIGTERM.

Tests ship it as `recipes/sft.py`: what jobs do to a run does not depend on what the run computes.
"""

import sys
import time
from pathlib import Path

from omegaconf import OmegaConf

from coding_model_project.errors import INTERRUPTED
from coding_model_project.launch.jobs.base import value_of
from coding_model_project.runs.console import output_copied_to
from coding_model_project.runs.folder import RunFolder, stop_requested
from coding_model_project.runs.starting import StopSignal, end_attempt, start_attempt

STEPS = "trainer.total_training_steps"


def main() -> None:
    given = sys.argv[1:]
    if value_of(given, "coding.seed") == "13":
        print("error: seed 13, as was asked", file=sys.stderr)
        sys.exit(2)
    run = RunFolder(Path(value_of(given, "coding.run_dir") or ""))
    config = OmegaConf.create({"coding": {"run_dir": str(run.path), "force": False}, "trainer": {}})
    attempt = start_attempt(run.path, config, inputs={}, recipe="sft", command=[], force=False)
    log_dir = run.log_dir(attempt.number)
    error: BaseException | None = None
    try:
        with output_copied_to(log_dir / "console.log"), StopSignal(log_dir, listen=True):
            _train(run, log_dir, int(value_of(given, STEPS) or "1000000"))
    except KeyboardInterrupt as interrupt:
        error = interrupt
    end_attempt(run.path, attempt, error)
    sys.exit(INTERRUPTED if error else 0)


def _train(run: RunFolder, log_dir: Path, steps: int) -> None:
    saved = [int(path.name.rpartition("_")[2]) for path in run.checkpoints.iterdir()]
    for step in range(max(saved, default=0) + 1, steps + 1):
        print(f"step {step}", flush=True)
        time.sleep(0.1)
        if stop_requested(log_dir) or step == steps:
            checkpoint = run.checkpoints / f"global_step_{step}"
            checkpoint.mkdir()
            (checkpoint / "model.bin").write_text(str(step))
            return


if __name__ == "__main__":
    main()
