"""Every hardware profile of every recipe composes; verl accepts each (marked verl)."""

import functools

import pytest
from omegaconf import OmegaConf

from coding_model_project.configs.reference import presets
from coding_model_project.configs.schema import coding_of, evaluation_settings
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.plan import GREEDY
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.launch import compose
from coding_model_project.launch.checks.checks import check_values
from coding_model_project.launch.command_line import parse
from coding_model_project.launch.compose import compose_recipe, recorded_config
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import FusionSandbox
from tests.tables import tables

pytestmark = pytest.mark.slow

CASES = tables("recipes")
PROFILES = ["cpu", "gpu_1x", "gpu_8x"]
RECIPES = ["sft", "dpo", "grpo", "repair", "harbor"]
PRESETS = [preset.name for preset in presets()]


@pytest.mark.parametrize("hardware", PROFILES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_composes_and_resolves(recipe, hardware):
    config = composed(recipe, f"hardware={hardware}")
    resolved = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    bare = hardware == "cpu" and recipe != "harbor"
    assert resolved["coding"]["prompt"] == ("bare" if bare else "fenced")
    assert resolved["data"]["train_files"].startswith(resolved["coding"]["data_dir"])


@pytest.mark.parametrize("hardware", PROFILES)
def test_the_baseline_composes_to_settings(hardware):
    config = compose_recipe("baseline", [f"hardware={hardware}", "coding.seed=7"])
    settings = evaluation_settings(coding_of(config))
    assert settings.seed == 7
    assert settings.protocol.name == "greedy"
    assert settings.protocol.prompt == ("bare" if hardware == "cpu" else "fenced")


def test_a_server_has_the_defaults_of_chat_models_on_any_hardware():
    server = ["hardware=cpu", "coding.evaluation.base_url=http://localhost:8000/v1"]
    config = compose_recipe("baseline", server)
    assert evaluation_settings(coding_of(config)).protocol == GREEDY
    assert config.coding.min_memory_gb == 0
    given = [*server, "coding.prompt=bare", "coding.evaluation.max_tokens=96"]
    explicit = evaluation_settings(coding_of(compose_recipe("baseline", given))).protocol
    assert (explicit.prompt, explicit.sampling.max_tokens) == ("bare", 96)


def test_fields_of_requests_and_variables_of_templates_are_the_users_own():
    keys = ("extra_body.reasoning_effort=low", "chat_template_kwargs.enable_thinking=false")
    given = [f"+coding.evaluation.{key}" for key in keys]
    config = compose_recipe("baseline", ["hardware=cpu", *given])
    evaluation = coding_of(config).evaluation
    assert evaluation.extra_body == {"reasoning_effort": "low"}
    assert evaluation.chat_template_kwargs == {"enable_thinking": False}


@pytest.mark.parametrize("hardware", ["cpu", "gpu_8x"])
@pytest.mark.parametrize("recipe", ["repair", "harbor"])
def test_repair_and_harbor_are_grpo_with_room_for_an_episode(recipe, hardware):
    grpo, other = (composed(name, f"hardware={hardware}") for name in ("grpo", recipe))
    assert leaves(other).keys() == leaves(grpo).keys()
    assert other.coding.run_dir != grpo.coding.run_dir
    assert grpo.coding.repair.rounds == grpo.coding.bash.turns == 0
    if recipe == "repair":
        assert other.coding.repair.rounds > 0
        assert other.coding.repair.attempt_tokens == grpo.data.max_response_length
    else:
        replies = (other.coding.bash.turns + 1) * other.coding.bash.reply_tokens
        assert 0 < replies <= other.data.max_response_length
    episode = other.data.max_prompt_length + other.data.max_response_length
    assert other.actor_rollout_ref.rollout.max_model_len == episode


@pytest.mark.parametrize("recipe", RECIPES)
def test_one_seed_reaches_data_sampling_and_training(recipe):
    config = compose_recipe(recipe, ["hardware=cpu", "coding.seed=7"])
    actor = "actor_rollout_ref.actor.data_loader_seed"
    keys = ["data.seed", "actor_rollout_ref.rollout.seed", actor]
    keys = ["trainer.seed"] if recipe in ("sft", "dpo") else keys
    assert [OmegaConf.select(config, key) for key in keys] == [7] * len(keys)


def test_tool_calls_have_data_of_their_own_and_room_for_a_longer_form():
    block = composed("harbor", "hardware=cpu")
    tools = composed("harbor", "hardware=cpu", "coding.bash.calls=tools")
    assert block.coding.data_dir == "data/tinyshell"
    assert tools.coding.data_dir == "data/tinyshell_tools"
    assert tools.actor_rollout_ref.model.path == "data/tinyshell_tools/base"
    assert tools.data.max_response_length > block.data.max_response_length
    length = tools.data.max_prompt_length + tools.data.max_response_length
    assert tools.actor_rollout_ref.rollout.max_model_len == length
    own = composed("harbor", "hardware=cpu", "coding.bash.calls=tools", "coding.data_dir=mine")
    assert own.coding.data_dir == "mine"
    with pytest.raises(ConfigError, match=r"coding\.bash\.calls"):
        compose_recipe("harbor", ["coding.bash.calls=xml"])


def test_compositions_one_after_another_are_equal_and_share_nothing():
    first, second = (compose_recipe("grpo", ["hardware=cpu"]) for _ in range(2))
    assert first == second
    first.coding.seed = first.data.train_batch_size = 77
    assert compose_recipe("grpo", ["hardware=cpu"]) == second != first


@functools.cache
def composed(recipe, *overrides):
    """A configuration to read: composing takes half a second, and tests ask for the same ones."""
    config = compose_recipe(recipe, list(overrides))
    OmegaConf.set_readonly(config, True)
    return config


def leaves(node, prefix=""):
    """Every key in full with its value, as it is written."""
    if not OmegaConf.is_dict(node) or not node:
        return {prefix.rstrip("."): node}
    raw = {name: node._get_node(name) for name in node}
    return {
        key: value
        for name, child in raw.items()
        for key, value in leaves(child, f"{prefix}{name}.").items()
    }


def test_presets_override_the_profile_and_the_command_line_overrides_them():
    def steps(*more):
        return composed("grpo", "hardware=cpu", *more).trainer.total_training_steps

    without = steps()
    assert without not in (4, 5)
    assert steps("experiment=none") == without
    assert steps("trainer.total_training_steps=5", "experiment=quick") == 5
    assert steps("experiment=[long,quick]") == 4


@pytest.mark.parametrize(("presets", "key"), CASES["rival presets"])
def test_presets_that_choose_different_losses_or_rewards_are_refused_together(presets, key):
    with pytest.raises(ConfigError) as caught:
        compose_recipe("grpo", [f"experiment=[{presets}]", "hardware=cpu"])
    for word in (key, *presets.split(",")):
        assert word in str(caught.value)


def test_an_unknown_preset_names_the_choices():
    with pytest.raises(ConfigError) as caught:
        compose_recipe("grpo", ["experiment=fast", "hardware=cpu"])
    assert caught.value.exit_code == 2
    assert " ".join(PRESETS) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.verl
@pytest.mark.parametrize(
    ("hardware", "recipe", "preset"),
    [
        *(("gpu_8x", "grpo", preset) for preset in PRESETS),
        *((hardware, "grpo", "none") for hardware in PROFILES[:2]),
        *((hardware, "repair", "none") for hardware in PROFILES),
        ("gpu_multi", "grpo", "golf"),
    ],
)
def test_verl_validates(hardware, recipe, preset, cpu_platform):
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    from coding_model_project.verl_ext.trainers.grpo import plain

    given = composed(recipe, f"hardware={hardware}", f"experiment={preset}")
    assert leaves(given).keys() == leaves(composed(recipe, f"hardware={hardware}")).keys()
    config = plain(given)
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    assert isinstance(omega_conf_to_dataclass(config.algorithm), AlgoConfig)


@pytest.mark.verl
@pytest.mark.parametrize("hardware", ["cpu", "gpu_8x"])
def test_verl_takes_the_teacher(hardware, cpu_platform):
    from verl.utils.config import omega_conf_to_dataclass

    from coding_model_project.verl_ext.trainers.grpo import plain

    model = "distillation.teacher_models.teacher_model.model_path=m"
    config = plain(composed("grpo", f"hardware={hardware}", "experiment=distill", model))
    teachers = omega_conf_to_dataclass(config.distillation)
    (teacher,) = teachers.teacher_models.values()
    data = config.data
    assert (teachers.enabled, teacher.num_replicas, teacher.world_size) == (True, 1, 1)
    assert teacher.inference.prompt_length == data.max_prompt_length + data.max_response_length
    assert teacher.inference.dtype == config.actor_rollout_ref.rollout.dtype
    if hardware == "cpu":  # vLLM's build for it has no sleep mode
        assert not teacher.inference.enable_sleep_mode
        assert config.ray_kwargs.ray_init.num_gpus >= 1 + teacher.world_size


def test_a_run_that_is_repeated_keeps_apart_from_the_recorded_runs_urls(tmp_path):
    config = compose_recipe("grpo", ["hardware=cpu", f"coding.run_dir={tmp_path}/one"])
    config.coding.checkpoints.url, config.coding.mirror.url = "s3://b/checkpoints", "s3://b/run"
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(config, resolve=True))
    repeated = recorded_config(tmp_path / "config.yaml", f"{tmp_path}/two")
    assert repeated.coding.checkpoints.url is None and repeated.coding.mirror.url is None
    assert repeated.trainer.default_local_dir == f"{tmp_path}/two/checkpoints"


# ── `sandbox=` chooses where programs run, in every recipe ────────────────────────────────────────


URLS = "coding.sandbox.urls=[http://one:8080,http://two:8080]"


def sandbox(recipe, *overrides):
    config = compose_recipe(recipe, ["hardware=cpu", *overrides])
    return make_sandbox(coding_of(config).sandbox)


@pytest.mark.parametrize("recipe", ["sft", "grpo"])
def test_the_group_chooses_the_sandbox(recipe):
    assert isinstance(sandbox(recipe), EmbeddedSandbox)
    assert isinstance(sandbox(recipe, "sandbox=fusion", URLS), FusionSandbox)


@pytest.mark.parametrize(("overrides", "says"), CASES["wrong sandbox"])
def test_a_wrong_choice_is_named_with_the_right_one(overrides, says):
    with pytest.raises(ConfigError, match=says):
        sandbox("grpo", *overrides)


# ── no key of verl is without effect without a word, and all refusals come at once ────────────────


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
        (line,) = (one for one in lines if one.lstrip("+").startswith(f"{key}="))
        assert wrong[override] in line
    types = ["data.train_batch_size=many", "trainer.total_epochs=many"]
    assert len(refused("trainer.profile_steps=[1]", *types)) == 3


def test_keys_of_another_profile_are_unknown_in_this_one():
    key = "actor_rollout_ref.model.override_config.attn_implementation"
    (line,) = refused(f"{key}=sdpa", hardware="gpu_1x")
    assert f"+{key}=sdpa" in line


def test_what_verl_accepts_and_does_not_use_is_said():
    given = ["hardware=cpu", "data.return_raw_chat=true", "algorithm.kl_ctrl.kl_coef=0.1"]
    given += ["+algorithm.mask_truncated_samples=true", "trainer.total_training_steps=3"]
    found = compose.without_effect("grpo", given, compose_recipe("grpo", given))
    lines = [line for _, line, _ in found]
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
    "override", ["trainer.max_actor_ckpt_to_keep=1", "+trainer.remove_previous_ckpt_in_save=true"]
)
def test_a_kill_always_finds_a_whole_checkpoint(override):
    with pytest.raises(ConfigError, match=r"max_actor_ckpt_to_keep to 2"):
        check_values(compose_recipe("grpo", ["hardware=cpu", override]))


@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        ([], 64),
        (["coding.prompt=fenced"], 16),
        (["actor_rollout_ref.actor.ppo_mini_batch_size=3", "actor_rollout_ref.rollout.n=5"], 15),
        (["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"], 8),
    ],
)
def test_micro_batches_divide_what_a_rank_trains_on(overrides, size):
    actor = compose_recipe("grpo", ["hardware=cpu", *overrides]).actor_rollout_ref.actor
    assert actor.ppo_micro_batch_size_per_gpu == size
