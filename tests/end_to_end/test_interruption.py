"""A run that is killed leaves nothing running and goes on from its last checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from coding_model_project.launch.checks.machine_checks import cpu_need
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.runs.checkpoint_store import CheckpointStore
from tests.exports import check_is_start

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("verl"), pytest.mark.timeout(600)]


def start(popen, run_dir: Path, overrides: list[str]) -> subprocess.Popen[bytes]:
    with (run_dir / "log.txt").open("ab") as log:
        return popen(
            [sys.executable, "-m", "recipes.grpo", *overrides],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def steps(run_dir: Path) -> list[int]:
    path = run_dir / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["step"] for line in lines]


def wait_for_step(run_dir: Path, process: subprocess.Popen[bytes], step: int) -> None:
    while not any(done >= step for done in steps(run_dir)):
        assert process.poll() is None, (run_dir / "log.txt").read_text()[-3000:]
        time.sleep(0.1)


def left_running(run_dir: Path) -> list[psutil.Process]:
    """Processes of the run that are there after 20 s: its folder is in their command or environment."""
    deadline = time.monotonic() + 20
    while (found := _of_run(run_dir)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _of_run(run_dir: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            about = [*process.cmdline(), *process.environ().values()]
            ours = any(str(run_dir) in text for text in about) and process.pid != os.getpid()
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_killed_then_resumed_elsewhere_then_interrupted(world, tmp_path, popen):
    """The machine dies with its disk: the next one goes on from the copy of the last checkpoint."""
    url = f"file://{tmp_path}/store"
    overrides = [*world.overrides(tmp_path), "trainer.save_freq=2", f"coding.checkpoints.url={url}"]
    overrides += ["trainer.total_training_steps=1000", "trainer.total_epochs=1000"]
    overrides.append("coding.training.sampler=online")
    # As many CPUs as verl reserves, and none more: with four it would wait for ever.
    need = cpu_need(compose_recipe("grpo", ["hardware=cpu"])).total
    overrides.append(f"ray_kwargs.ray_init.num_cpus={need}")

    first = start(popen, tmp_path, overrides)
    wait_for_step(tmp_path, first, 3)
    first.kill()
    first.wait()
    assert left_running(tmp_path) == []
    seen = steps(tmp_path)
    saved = CheckpointStore(url, keep=3, say=print).steps()[0]
    assert saved >= seen[-1] - 3
    sampler = sampler_state(tmp_path, saved)
    shutil.rmtree(tmp_path / "checkpoints")

    second = start(popen, tmp_path, overrides)
    while len(steps(tmp_path)) < len(seen) + 2:  # the second saves a checkpoint
        assert second.poll() is None, (tmp_path / "log.txt").read_text()[-3000:]
        time.sleep(0.1)
    later = sampler_state(tmp_path, saved + 2)
    os.kill(second.pid, signal.SIGINT)
    assert second.wait(300) == 130
    assert left_running(tmp_path) == []
    resumed = steps(tmp_path)[len(seen) :]
    assert resumed[0] == saved + 1  # nothing lost but the steps since that checkpoint
    assert resumed == list(range(resumed[0], resumed[0] + len(resumed)))
    # The sampler goes on with what it had learned.
    assert sampler["problems"] == later["problems"] and sampler["rng"] != later["rng"]
    judged = [sum(state["passed"]) + sum(state["failed"]) for state in (sampler, later)]
    assert 0 < judged[0] < judged[1]
    check_is_start(weights_of(tmp_path, saved + 2), world.root / "model")


def sampler_state(run_dir: Path, step: int) -> dict[str, Any]:
    import torch

    kept = torch.load(run_dir / f"checkpoints/global_step_{step}/data.pt", weights_only=False)
    return kept["_sampler_iter_state"]["sampler_state"]


def weights_of(run_dir: Path, step: int) -> Path:
    return run_dir / f"checkpoints/global_step_{step}/actor/huggingface"
