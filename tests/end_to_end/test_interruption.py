"""A run that is killed leaves nothing running and goes on from its last checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from coding_model_project.launch.checks.machine_checks import reserved_cpus
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.rollouts import read_all_rollouts, read_ungradable
from coding_model_project.runs.starting_model import weight_entries
from tests.end_to_end.started import Started, logged
from tests.exports import check_is_start

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("verl"), pytest.mark.timeout(600)]


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


def test_an_adapter_trains_on_what_can_be_judged_killed_then_resumed_elsewhere_then_interrupted(
    world, tmp_path, popen
):
    """The machine dies with its disk: the next one goes on from the copy of the last checkpoint."""
    url = f"file://{tmp_path}/store"
    overrides = [
        *world.overrides(tmp_path),
        "trainer.save_freq=2",
        f"coding.checkpoints.url={url}",
        "trainer.total_training_steps=1000",
        "trainer.total_epochs=1000",
        "coding.training.sampler=online",
        "coding.sandbox.name=tests.faults:FailsOn",
        "+coding.sandbox.kwargs.argument=3000",  # one problem of four
        "experiment=lora",
        "actor_rollout_ref.model.lora.merge=true",
        "actor_rollout_ref.actor.fsdp_config.param_offload=false",
        "trainer.test_freq=2",
        "actor_rollout_ref.rollout.val_kwargs.n=4",
        "trainer.logger=[console,file,tensorboard,wandb]",
    ]
    # As many CPUs as verl reserves, and none more: with four it would wait for ever.
    need = sum(reserved_cpus(compose_recipe("grpo", ["hardware=cpu"])))
    overrides.append(f"ray_kwargs.ray_init.num_cpus={need}")

    first = Started(popen, "grpo", overrides, tmp_path, tmp_path / "log.txt")
    first.wait(lambda: max(first.steps, default=0) >= 3)
    first.kill()
    assert left_running(tmp_path) == []
    seen = first.steps
    saved = CheckpointStore(url, keep=3, say=print).steps()[0]
    assert saved >= seen[-1] - 3
    check_judged(tmp_path)
    sampler = sampler_state(tmp_path, saved)
    check_is_start(weights_of(tmp_path, saved), world.root / "model")  # merged
    assert weight_entries(weights_of(tmp_path, saved)) == weight_entries(world.root / "model")
    shutil.rmtree(tmp_path / "checkpoints")

    second = Started(popen, "grpo", overrides, tmp_path, tmp_path / "log.txt")
    second.wait(lambda: len(second.steps) >= len(seen) + 2)  # the second saves a checkpoint
    later = sampler_state(tmp_path, saved + 2)
    assert second.ends(signal.SIGINT) == 130
    assert left_running(tmp_path) == []
    resumed = second.steps[len(seen) :]
    assert resumed[0] == saved + 1  # nothing lost but the steps since that checkpoint
    assert resumed == list(range(resumed[0], resumed[0] + len(resumed)))
    # The sampler goes on with what it had learned.
    assert sampler["problems"] == later["problems"] and sampler["rng"] != later["rng"]
    judged = [sum(state["passed"]) + sum(state["failed"]) for state in (sampler, later)]
    assert 0 < judged[0] < judged[1]
    check_is_start(weights_of(tmp_path, saved + 2), world.root / "model")


def check_judged(run_dir: Path) -> None:
    """Check what steps and files say of the samples that could be judged, and of the others."""
    lines = [row["data"] for row in logged(run_dir)]
    trained_steps = [row for row in lines if "judge/infra_rate" in row]
    assert len(trained_steps) >= 3
    for step in trained_steps:
        # A random model may also write nothing, which is judged without the sandbox.
        assert 0 < step["judge/infra_rate"] <= 0.25
        shares = [step[f"judge/{name}"] for name in ("accepted", "no_code", "syntax_error")]
        shares += [step[f"judge/{name}"] for name in ("runtime_error", "timeout", "wrong_answer")]
        assert sum(shares) == pytest.approx(1)  # of those that were judged
        assert 0 < step["rollout/trained_tokens"] < step["rollout/generated_tokens"]
        assert {"judge/seconds", "judge/cache_hits", "judge/wait_s"} <= step.keys()
        assert step["judge/reward_if_infra_were_zero"] <= step["judge/reward"]
        assert abs(step["actor/ppo_kl"]) < 1e-3  # the rollout has the adapter too
    ended = trained_steps[-1]["training/global_step"]
    lost = [row for row in read_ungradable(run_dir) if row.step <= ended]
    assert {row.problem for row in lost} == {"mine/3"}
    assert {row.reason for row in lost} == {"made to fail on 3000"}
    trained = [row for row in read_all_rollouts(run_dir) if row.split == "train"]
    assert not {row.sample for row in lost} & {row.sample.rpartition("_")[0] for row in trained}
    assert all(row.advantage is not None for row in trained)
    assert 0 < trained_steps[1]["val-aux/judge/infra_rate"] <= 0.25
    assert list((run_dir / "tensorboard").rglob("events.*"))
    assert list(run_dir.glob("wandb/offline-run-*"))


def sampler_state(run_dir: Path, step: int) -> dict[str, Any]:
    import torch

    kept = torch.load(run_dir / f"checkpoints/global_step_{step}/data.pt", weights_only=False)
    return kept["_sampler_iter_state"]["sampler_state"]


def weights_of(run_dir: Path, step: int) -> Path:
    return run_dir / f"checkpoints/global_step_{step}/actor/huggingface"
