"""verl's own trainers on the smallest world there is, in one Ray session: what they report, and that
whatever fails ends the run with one clear error."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from coding_model_project import cli
from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from coding_model_project.runs.checkpoints import checkpoints_in
from coding_model_project.runs.starting_model import weight_entries
from tests.end_to_end.started import logged
from tests.exports import check_is_start

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]


def train(recipe: str, overrides: list[str]) -> None:
    module = importlib.import_module(f"recipes.{recipe}.__main__")
    carry_out(module.RECIPE, compose_recipe(recipe, overrides))


def metrics(run_dir: Path) -> list[dict[str, float]]:
    return [line["data"] for line in logged(run_dir)]


def test_sft_trains_and_one_that_resumes_from_its_last_checkpoint_trains_no_further(
    world, tmp_path, cpu_platform
):
    """As after a kill between the last checkpoint and the end; here on an empty machine."""
    shared = ["trainer.total_training_steps=3", "trainer.total_epochs=9", "trainer.test_freq=1"]
    shared += ["trainer.save_freq=-1", f"coding.checkpoints.url=file://{tmp_path}/store"]
    found = []
    for name in ("one", "two"):
        train("sft", [*world.overrides(tmp_path / name, "sft"), *shared])
        (folder,) = checkpoints_in(tmp_path / name / "checkpoints")
        found.append((folder.name, (folder / "huggingface/model.safetensors").read_bytes()))
    assert found[0] == found[1]
    assert found[0][0] == "global_step_3"
    rows = metrics(tmp_path / "one")
    losses = [row["train/loss"] for row in rows if "train/loss" in row]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    validated = [row["val/loss"] for row in rows if "val/loss" in row]
    assert validated and all(loss > 0 for loss in validated)
    check_is_start(folder / "huggingface", world.root / "model")


def test_lora_resumed_at_an_epochs_end_trains_on_and_exports_plain_weights(
    world, tmp_path, cpu_platform
):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    # A step is an epoch in this world.
    asked = ["trainer.total_training_steps=4", "trainer.total_epochs=4", "trainer.test_freq=-1"]
    asked += ["model.lora_rank=4", "model.lora_alpha=8", "optim.lr=1e-2", "trainer.save_freq=2"]

    def losses(run_dir):
        train("sft", [*world.overrides(run_dir, "sft"), *asked])
        return [row["train/loss"] for row in metrics(run_dir) if "train/loss" in row]

    expected = losses(whole)
    assert len(expected) == 4
    assert expected[3] < expected[0]
    # What a kill after the second step leaves.
    shutil.copytree(whole / "checkpoints/global_step_2", resumed / "checkpoints/global_step_2")
    (resumed / "checkpoints/latest_checkpointed_iteration.txt").write_text("2")
    assert losses(resumed) == pytest.approx(expected[2:], rel=1e-4)
    export = resumed / "checkpoints/global_step_4/huggingface"
    check_is_start(export, world.root / "model")
    assert weight_entries(export) == weight_entries(world.root / "model")

    # The same weights come from the shards alone.
    weights = (export / "model.safetensors").rename(tmp_path / "model.safetensors")
    assert cli.main(["export", str(export.parent), "--out", str(tmp_path / "merged")]) == 0
    check_is_start(tmp_path / "merged", world.root / "model")
    assert (tmp_path / "merged" / "model.safetensors").read_bytes() == weights.read_bytes()


def test_stable_replaces_and_masks_within_limits_and_a_guard_ends_the_run(world, tmp_path, in_ray):
    """A random model's groups agree, all wrong, and most responses run into the limit."""
    with pytest.raises(TrainingError, match=r"coding\.training\.guards\.max_entropy=-1"):
        train(
            "grpo",
            [
                *world.overrides(tmp_path),
                "experiment=stable",
                "coding.training.guards={max_entropy:-1,patience:1}",
                "data.max_response_length=96",  # of 300 tokens two end a response
                "trainer.save_freq=-1",
            ],
        )
    (step,) = metrics(tmp_path)
    assert step["guard/max_entropy"] == 1
    assert step["rollout/mismatch"] < 1e-4
    assert step["training/filter_lifted"] == 1
    assert step["training/resampled_prompts"] >= 3 * 4
    assert 0.9 < step["rollout_corr/rollout_is_mean"] < 1.1
    assert step["response_length/mean"] > 1  # of the masked ones too
    assert 0 < step["training/truncated_left_out"] < 1


def ends_itself():
    """Return a class of workers, as verl makes them: Ray names them by it."""

    class Worker:
        def end(self):
            os.kill(os.getpid(), signal.SIGKILL)

    return Worker


class Runner:
    def run(self):
        import ray

        ray.get(ray.remote(num_cpus=0)(ends_itself()).remote().end.remote())


def test_a_killed_worker_is_named_with_its_node_and_how_it_ended(in_ray):
    import ray

    from coding_model_project.verl_ext.cluster.nodes import cause_of

    with pytest.raises(ray.exceptions.RayActorError) as caught:
        ray.get(ray.remote(num_cpus=0)(Runner).remote().run.remote())
    cause = cause_of(caught.value)
    assert re.fullmatch(r"Worker on \d+\.\d+\.\d+\.\d+ died \(Worker .*`dmesg`.*\)", cause)


@pytest.mark.soak
def test_a_teacher_scores_the_models_own_tokens(world, tmp_path, in_ray):
    """On-policy distillation; the teacher has another size and the same tokens."""
    teacher = "distillation.teacher_models.teacher_model.model_path"
    run = [*world.overrides(tmp_path), "experiment=distill", f"{teacher}={world.root}/wide"]
    train("grpo", [*run, "trainer.total_training_steps=2", "trainer.save_freq=-1"])
    steps = [row for row in metrics(tmp_path) if "actor/distillation/loss" in row]
    assert len(steps) == 2
    assert all(step["actor/distillation/abs_loss"] > 0 for step in steps)
    assert all("judge/accepted" in step for step in steps)


def test_a_teacher_is_named_and_has_the_models_tokens(world, tmp_path):
    key = r"distillation\.teacher_models\.teacher_model\.model_path"
    run = [*world.overrides(tmp_path), "experiment=distill"]
    with pytest.raises(ConfigError, match=key):
        train("grpo", run)
    other = shutil.copytree(world.root / "model", tmp_path / "other")
    tokens = json.loads((other / "tokenizer.json").read_text())
    tokens["model"]["vocab"].popitem()
    (other / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(ConfigError, match=key):
        train("grpo", [*run, f"{key}={other}".replace("\\", "")])


@pytest.mark.soak  # each takes a loss that verl registers, which `test_verl_validates` looks up
@pytest.mark.parametrize("preset", ["dr_grpo", "gspo", "cispo", "dapo"])
def test_each_preset_trains_two_steps(preset, world, tmp_path, in_ray):
    train(
        "grpo",
        [
            *world.overrides(tmp_path),
            f"experiment={preset}",
            "coding.training.max_resampling=1",
            "trainer.total_training_steps=2",
            "trainer.save_freq=-1",
        ],
    )
    steps = [row for row in metrics(tmp_path) if "actor/pg_loss" in row]
    assert len(steps) == 2
    assert all(step["actor/grad_norm"] >= 0 for step in steps)


def test_an_adapter_beside_the_model_is_refused_without_an_accelerator(world, tmp_path):
    with pytest.raises(ConfigError, match=r"lora\.merge=true"):
        train("grpo", [*world.overrides(tmp_path), "experiment=lora"])


@pytest.mark.soak  # test_guards.py has its time limit
def test_a_failed_weight_sync_ends_the_run(world, tmp_path, in_ray):
    started = time.monotonic()
    with pytest.raises(TrainingError, match=r"update_weights_bucket_megabytes|weight sync"):
        train(
            "grpo",
            [
                *world.overrides(tmp_path, model="wide"),
                "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=1",
                "coding.weight_sync_timeout_s=10",
            ],
        )
    print(f"ended after {time.monotonic() - started:.0f} s")


def test_a_plugin_that_does_not_load_says_why(monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    from verl.plugin.platform.platform_manager import PlatformRegistry

    from coding_model_project.verl_ext.cpu_plugin import check_cpu_plugin

    monkeypatch.setattr(PlatformRegistry, "get", classmethod(lambda *_: None))
    monkeypatch.setitem(__import__("sys").modules, "coding_model_project.verl_ext.cpu", None)
    with pytest.raises(ConfigError, match="CPU platform"):
        check_cpu_plugin()
