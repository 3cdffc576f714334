"""Every hardware profile of every recipe composes; verl accepts each (marked verl)."""

import pytest
from omegaconf import OmegaConf

from recipes.compose import compose_recipe

PROFILES = ["cpu", "gpu_1x", "gpu_8x"]
RECIPES = ["sft", "grpo"]


@pytest.mark.parametrize("hardware", PROFILES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_composes_and_resolves(recipe, hardware):
    config = compose_recipe(recipe, [f"hardware={hardware}"])
    resolved = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert resolved["coding"]["prompt"] == ("bare" if hardware == "cpu" else "fenced")
    assert resolved["data"]["train_files"].startswith(resolved["coding"]["data_dir"])


@pytest.mark.parametrize("recipe", RECIPES)
def test_one_seed_reaches_data_sampling_and_training(recipe):
    config = compose_recipe(recipe, ["hardware=cpu", "coding.seed=7"])
    keys = {
        "sft": ["trainer.seed"],
        "grpo": [
            "data.seed",
            "actor_rollout_ref.rollout.seed",
            "actor_rollout_ref.actor.data_loader_seed",
        ],
    }
    assert [OmegaConf.select(config, key) for key in keys[recipe]] == [7] * len(keys[recipe])


@pytest.mark.verl
@pytest.mark.parametrize("hardware", PROFILES)
def test_verl_validates_grpo(hardware, cpu_platform):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from coding_model_project.verl_ext.grpo import plain

    overrides = [f"hardware={hardware}"]
    config = plain(compose_recipe("grpo", overrides))
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
