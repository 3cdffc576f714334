"""No key of verl is without effect in a recipe without a word, and all refusals come at once."""

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch import compose
from coding_model_project.launch.checks.checks import check_values
from coding_model_project.launch.command_line import parse
from coding_model_project.launch.compose import compose_recipe
from tests.tables import tables

CASES = tables("recipes")

pytestmark = pytest.mark.slow
ROLLOUT = "actor_rollout_ref.rollout"


def refused(*overrides, hardware="cpu"):
    with pytest.raises(ConfigError) as caught:
        check_values(compose_recipe("grpo", [f"hardware={hardware}", *overrides]))
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("override", "says"), CASES["without effect"])
def test_a_key_that_would_have_no_effect_or_fail_late_is_refused(override, says):
    (line,) = refused(override)
    assert says in line


def test_all_refusals_come_at_once():
    unknown = refused("trainer.mine=1", "reward_model.sandbox_fusion.url=u", "data.train_batch=1")
    keys = ["trainer.mine", "reward_model.sandbox_fusion.url", "data.train_batch"]
    assert [line.split("=")[0] for line in unknown] == keys
    assert "did you mean" not in unknown[0]
    assert "sandbox=fusion coding.sandbox.urls" in unknown[1]
    assert "did you mean data.train_batch_size?" in unknown[2]
    wrong = {
        "actor_rollout_ref.actor.use_token_level_loss=true": "loss_agg_mode=token-mean",
        "+algorithm.filter_groups.enable=true": "without +",
        "reward_model.reward_manager=prime": "leave it out",
        "reward.reward_manager.name=dapo": "main_ppo",
        "actor_rollout_ref.rollout.mode=sync": "async",
        "trainer.total_epochs=0": "at least 1",
        f"{ROLLOUT}.top_p=2": "at most 1",
    }
    lines = refused(*wrong)
    assert len(lines) == len(wrong)
    for override in wrong:
        key = override.lstrip("+").split("=")[0]
        assert [wrong[override] in line for line in lines if key in line] == [True]
    types = ["data.train_batch_size=many", "trainer.total_epochs=many"]
    assert len(refused("trainer.profile_steps=[1]", *types)) == 3


def test_keys_of_another_profile_are_unknown_in_this_one():
    key = "actor_rollout_ref.model.override_config.attn_implementation"
    (line,) = refused(f"{key}=sdpa", hardware="gpu_1x")
    assert f"+{key}=sdpa" in line


def test_what_verl_accepts_and_does_not_use_is_said():
    given = ["hardware=cpu", "data.return_raw_chat=true", "algorithm.kl_ctrl.kl_coef=0.1"]
    given += ["+algorithm.mask_truncated_samples=true", "trainer.total_training_steps=3"]
    lines = [*compose.without_effect("grpo", given, compose_recipe("grpo", given))]
    keys = ["data.return_raw_chat", "algorithm.kl_ctrl.kl_coef"]
    keys += ["+algorithm.mask_truncated_samples"]
    assert [line.split("=")[0] for line in lines] == keys
    assert "set coding.training.mask_truncated=true" in lines[2]


@pytest.mark.parametrize(
    "word", ["hydra.searchpath=[pkg://mine]", "--config-name=ppo_megatron_trainer"]
)
def test_what_replaces_the_recipes_own_configuration_is_refused(word):
    with pytest.raises(ConfigError, match="recipe"):
        parse([word])


def test_longer_samples_need_no_other_key_on_gpus():
    given = ["hardware=gpu_1x", "data.max_response_length=3072"]
    check_values(config := compose_recipe("grpo", given))
    assert config.actor_rollout_ref.rollout.max_model_len == 1024 + 3072


@pytest.mark.parametrize(
    "override",
    ["trainer.max_actor_ckpt_to_keep=1", "+trainer.remove_previous_ckpt_in_save=true"],
)
def test_a_kill_always_finds_a_whole_checkpoint(override):
    with pytest.raises(ConfigError, match=r"max_actor_ckpt_to_keep to 2"):
        check_values(compose_recipe("grpo", ["hardware=cpu", override]))
