"""DPO on verl's engines: the loss and its gradients are TRL's, and a run trains, stops and goes on."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from recipes.dpo.__main__ import RECIPE
from tests.end_to_end.started import logged
from tests.exports import check_is_start

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

TRL = Path(sys.prefix) / "opt" / "trl"
"""Apart from the environment: verl takes another path where it can import trl."""
BETA, SMOOTHING = 0.3, 0.2


def composed(*overrides: str) -> DictConfig:
    config = compose_recipe("dpo", list(overrides))
    return DictConfig(OmegaConf.to_container(config, resolve=True, enum_to_str=True))


@pytest.fixture
def alone(cpu_platform):
    from verl.utils.distributed import (
        destroy_global_process_group,
        initialize_global_process_group,
    )

    from coding_model_project.verl_ext.trainers.sft import the_only_rank

    with the_only_rank():
        initialize_global_process_group()
        yield
        destroy_global_process_group()


def another(model: Path, out: Path) -> Path:
    """The same model with other weights."""
    import torch
    from transformers import AutoModelForCausalLM

    shutil.copytree(model, out)
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    weights.save_pretrained(out)
    return out


def test_losses_and_gradients_are_those_of_trl(world, tmp_path, alone):
    import torch
    from verl.utils import tensordict_utils as tu

    from coding_model_project.verl_ext.trainers.dpo_pairs import PairCollator
    from coding_model_project.verl_ext.trainers.dpo_trainer import DPOTrainer, engine_loss, total

    policy = another(world.root / "model", tmp_path / "policy")
    shared = [*world.overrides(tmp_path / "run", "dpo"), "data.max_length=128"]
    reference = DPOTrainer(composed(*shared)).train_dataset.reference
    trainer = DPOTrainer(composed(*shared, f"model.path={policy}"))
    pairs = trainer.train_dataset
    assert reference is not None
    assert not torch.allclose(reference, pairs.reference)
    pairs.reference = reference
    rows = [pairs[number] for number in range(len(pairs))]
    assert len({len(row["input_ids"]) for pair in rows for row in pair}) > 3
    expected = trl(rows, policy, world.root / "model", tmp_path)
    engine = trainer.engine
    micro_batches = (
        {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 3},
        {"use_dynamic_bsz": True, "max_token_len_per_gpu": 256},
    )
    for name, micro in itertools.product(expected, micro_batches):
        meta = trainer._meta() | micro | {"global_batch_size": len(pairs)}
        batch = tu.get_tensordict(PairCollator("no_padding")(rows), meta)
        settings = OmegaConf.create({"loss": name, "beta": BETA, "label_smoothing": SMOOTHING})
        with engine.train_mode():
            engine.optimizer_zero_grad()
            loss = functools.partial(engine_loss, settings=settings)
            output = engine.forward_backward_batch(batch, loss)
            gradients = {
                key: value.grad.full_tensor() for key, value in engine.module.named_parameters()
            }
        theirs = expected[name]
        assert len(output["loss"]) > 3  # micro-batches
        assert sum(output["loss"]) == pytest.approx(theirs["loss"], abs=1e-5)
        assert gradients.keys() == theirs["gradients"].keys()
        for key, gradient in theirs["gradients"].items():
            assert torch.allclose(gradients[key], gradient, rtol=0, atol=1e-5), (name, key)
        assert max(gradient.abs().max() for gradient in gradients.values()) > 1e-3
        for key in ("rewards_chosen", "rewards_rejected", "margin", "accuracy"):
            assert total(output["metrics"][f"dpo/{key}"]) == pytest.approx(theirs[key], abs=1e-5)


def trl(rows, policy: Path, reference: Path, folder: Path):
    """Return TRL's metrics on the same tokens, padded."""
    import torch

    if not TRL.exists():
        pytest.skip(f"trl is not in {TRL}: make setup installs it there")
    examples = []
    for pair in rows:
        (prompt, chosen), (_, rejected) = (halves(row) for row in pair)
        examples.append({"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected})
    batch = {"policy": str(policy), "reference": str(reference), "pairs": examples}
    torch.save(batch | {"beta": BETA, "label_smoothing": SMOOTHING}, folder / "batch.pt")
    script = Path(__file__).parents[1] / "trl_gradients.py"
    command = [sys.executable, str(script), str(folder / "batch.pt"), str(folder / "out.pt")]
    ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in ranks}
    environment["PYTHONPATH"] = f"{TRL}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return torch.load(folder / "out.pt")


def halves(row) -> tuple[list[int], list[int]]:
    """Tokens of the prompt and of the answer."""
    n = int((row["loss_mask"] == 0).sum())
    assert row["loss_mask"][n:].all()
    return row["input_ids"][:n].tolist(), row["input_ids"][n:].tolist()


def test_trl_is_not_where_verl_can_import_it():
    assert importlib.util.find_spec("trl") is None


def metrics(run_dir: Path, name: str) -> dict[int, float]:
    """A metric by step, as last logged."""
    return {row["step"]: row["data"][name] for row in logged(run_dir) if name in row["data"]}


def test_it_trains_exports_and_goes_on_as_if_nothing_had_happened(
    world, tmp_path, cpu_platform, capsys
):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    steps = ["trainer.total_training_steps=4", "trainer.save_freq=2", "trainer.test_freq=4"]

    def train(run_dir: Path) -> str:
        overrides = [*world.overrides(run_dir, "dpo"), *steps, "optim.lr=1e-3"]
        carry_out(RECIPE, compose_recipe("dpo", overrides))
        return capsys.readouterr().out

    assert "data.train_files: 12 pairs" in train(whole)
    losses = metrics(whole, "dpo/loss")
    assert losses[1] == pytest.approx(0.693147, abs=1e-4)  # the policy is the reference
    margins = metrics(whole, "dpo/margin")
    assert margins[4] > margins[2] > margins[1]
    assert metrics(whole, "dpo/accuracy")[4] > 0.5
    names = ("loss", "rewards_chosen", "rewards_rejected", "margin", "accuracy")
    assert all(4 in metrics(whole, f"val/dpo/{name}") for name in names)
    assert metrics(whole, "val/dpo/loss")[4] == pytest.approx(metrics(whole, "val/loss")[4])
    export = whole / "checkpoints/global_step_4/huggingface"
    before = world.root / "model" / "model.safetensors"
    check_is_start(export, world.root / "model")
    assert (export / "model.safetensors").read_bytes() != before.read_bytes()

    # What a kill after the second step leaves.
    shutil.copytree(whole / "checkpoints/global_step_2", resumed / "checkpoints/global_step_2")
    (resumed / "checkpoints/latest_checkpointed_iteration.txt").write_text("2")
    train(resumed)
    again = metrics(resumed, "dpo/loss")
    assert again == pytest.approx({step: losses[step] for step in (3, 4)}, rel=1e-5)
