"""Faults of clusters and services, done to SFT runs in a tenth of the time that GRPO takes."""

from __future__ import annotations

import signal

import psutil
import pytest

from coding_model_project.runs.checkpoints import checkpoints_in, step_of
from coding_model_project.runs.folder import RunFolder, State
from tests.end_to_end.started import Started
from tests.end_to_end.test_interruption import left_running
from tests.processes import command_line

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("verl"), pytest.mark.timeout(600)]

NO_WANDB = {
    "WANDB_MODE": "online",
    "WANDB_BASE_URL": "http://127.0.0.1:9",
    "WANDB_API_KEY": "0" * 40,
    "WANDB_INIT_TIMEOUT": "3",
}


def test_sigterm_saves_and_damage_falls_back(world, tmp_path, popen):
    run, output = RunFolder(tmp_path / "run"), tmp_path / "output.txt"
    overrides = [*world.overrides(run.path, "sft"), "trainer.save_freq=20", "trainer.test_freq=-1"]
    overrides += ["trainer.logger=[file,wandb]", "trainer.total_epochs=100000"]
    overrides += ["trainer.total_training_steps=100000"]

    first = Started(popen, "sft", overrides, run.path, output, **NO_WANDB)
    # A checkpoint by schedule, then the one that is asked for.
    first.wait(lambda: len(first.steps) >= 21)
    assert first.ends(signal.SIGTERM) == 130
    assert "W&B cannot be reached" in first.output  # and training went on
    assert run.state is State.interrupted
    last, before = map(step_of, checkpoints_in(run.checkpoints)[:2])
    assert last == first.steps[-1]
    assert left_running(run.path) == []

    weights = run.checkpoints / f"global_step_{last}" / "model_world_size_1_rank_0.pt"
    weights.write_bytes(weights.read_bytes()[:-1])
    n_lines = len(first.steps)
    output.unlink()
    second = Started(popen, "sft", overrides, run.path, output, WANDB_MODE="offline")
    second.wait(lambda: len(second.steps) > n_lines)
    for child in psutil.Process(second.process.pid).children(recursive=True):
        if "wandb-core" in command_line(child):
            child.kill()
    n_killed = len(second.steps)
    second.wait(lambda: len(second.steps) >= n_killed + 3)
    assert second.ends(signal.SIGTERM) == 130
    assert f"checkpoint global_step_{last} is damaged" in second.output
    assert second.steps[n_lines] == before + 1
    assert second.output.count("W&B's service has died") == 1  # and training went on
    assert "Traceback" not in second.output
