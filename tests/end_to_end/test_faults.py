"""Faults of clusters and services, done to SFT runs in a tenth of the time that GRPO takes.

`make soak` does all of it to GRPO.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from coding_model_project.runs.checkpoints import checkpoints_in, step_of
from coding_model_project.runs.folder import RunFolder, State
from tests.end_to_end.test_interruption import left_running
from tests.processes import command_line

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("verl"), pytest.mark.timeout(600)]

NO_WANDB = {
    "WANDB_MODE": "online",
    "WANDB_BASE_URL": "http://127.0.0.1:9",
    "WANDB_API_KEY": "0" * 40,
    "WANDB_INIT_TIMEOUT": "3",
}


def sft(
    popen, run: RunFolder, overrides: list[str], output: Path, **environment: str
) -> subprocess.Popen[bytes]:
    with output.open("wb") as printed:
        return popen(
            [sys.executable, "-m", "recipes.sft", *overrides],
            stdout=printed,
            stderr=printed,
            env=os.environ | environment,
        )


def wait_for_lines(run: RunFolder, n: int, process: subprocess.Popen[bytes], output: Path) -> None:
    while len(lines(run)) < n:
        assert process.poll() is None, output.read_text()[-3000:]
        time.sleep(0.1)


def lines(run: RunFolder) -> list[int]:
    """The step of each line of the run's metrics."""
    written = run.metrics.read_text().splitlines() if run.metrics.exists() else []
    return [json.loads(line)["step"] for line in written]


def test_sigterm_saves_and_damage_falls_back(world, tmp_path, popen):
    run, output = RunFolder(tmp_path / "run"), tmp_path / "output.txt"
    overrides = [*world.overrides(run.path, "sft"), "trainer.save_freq=20", "trainer.test_freq=-1"]
    overrides += ["trainer.logger=[file,wandb]", "trainer.total_epochs=100000"]
    overrides += ["trainer.total_training_steps=100000"]

    first = sft(popen, run, overrides, output, **NO_WANDB)
    wait_for_lines(
        run, 21, first, output
    )  # a checkpoint by schedule, then the one that is asked for
    first.send_signal(signal.SIGTERM)
    assert first.wait(300) == 130
    assert "W&B cannot be reached" in output.read_text()  # and training went on
    assert run.state is State.interrupted
    last, before = map(step_of, checkpoints_in(run.checkpoints)[:2])
    assert last == lines(run)[-1]
    assert left_running(run.path) == []

    weights = run.checkpoints / f"global_step_{last}" / "model_world_size_1_rank_0.pt"
    weights.write_bytes(weights.read_bytes()[:-1])
    n_lines = len(lines(run))
    second = sft(popen, run, overrides, output, WANDB_MODE="offline")
    wait_for_lines(run, n_lines + 1, second, output)
    for child in psutil.Process(second.pid).children(recursive=True):
        if "wandb-core" in command_line(child):
            child.kill()
    wait_for_lines(run, len(lines(run)) + 3, second, output)
    second.send_signal(signal.SIGTERM)
    assert second.wait(300) == 130
    assert f"checkpoint global_step_{last} is damaged" in output.read_text()
    assert lines(run)[n_lines] == before + 1
    assert output.read_text().count("W&B's service has died") == 1  # and training went on
    assert "Traceback" not in output.read_text()
