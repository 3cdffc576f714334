"""Values that no training works with are refused by name, whatever the recipe; the tables are verl's."""

import functools

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import relations, rules
from coding_model_project.launch.checks.checks import check_values
from coding_model_project.launch.compose import compose_recipe
from tests.tables import tables

CASES = tables("recipes")

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
RECIPES = ["baseline", "sft", "dpo", "grpo", "repair", "harbor", "pipeline"]


@functools.cache
def composed(recipe, hardware="cpu"):
    return compose_recipe(recipe, [f"hardware={hardware}"])


def refusal(recipe, **values):
    config = composed(recipe).copy()
    for key, value in values.items():
        OmegaConf.update(config, key, value)
    with pytest.raises(ConfigError) as caught:
        check_values(config)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("hardware", ["cpu", "gpu_1x", "gpu_8x"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_profile_passes(recipe, hardware):
    check_values(composed(recipe, hardware))


@pytest.mark.parametrize(("recipe", "key", "value", "says"), CASES["one line"])
def test_one_line_naming_the_key_its_value_and_the_way_out(recipe, key, value, says):
    assert says in refusal(recipe, **{key: value})


def test_another_judge_is_refused_also_where_a_preset_names_it():
    said = refusal("grpo", **{"reward.custom_reward_function.path": "own.py"})
    assert "judges by itself" in said


def test_an_online_sampler_does_not_go_with_an_order_nor_rates_without_it():
    online = {"coding.training.sampler": "online"}
    assert "data.shuffle=false" in refusal("grpo", **online, **{"data.shuffle": False})
    assert "coding.training.rates=r" in refusal("grpo", **{"coding.training.rates": "r"})


def test_a_token_budget_that_the_longest_sample_does_not_fit_in():
    values = {f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": 100}
    assert "set it to 192 or more" in refusal("grpo", **values)


def test_a_known_model_bounds_the_context(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    said = refusal("grpo", **{"actor_rollout_ref.model.path": str(tmp_path)})
    assert "data.max_prompt_length=96 + data.max_response_length=96: the model" in said
    assert "stay within 64" in said


def test_a_logger_whose_package_is_missing(monkeypatch):
    monkeypatch.setattr(relations.importlib.util, "find_spec", lambda name: None)
    assert "pip install mlflow" in refusal("grpo", **{"trainer.logger": ["mlflow"]})


@pytest.mark.parametrize(
    "given",
    [
        {f"{ROLLOUT}.n": 1, "algorithm.adv_estimator": "reinforce_plus_plus"},
        {"algorithm.adv_estimator": "mine", "actor_rollout_ref.model.external_lib": "my.module"},
    ],
    ids=["one sample without groups", "an estimator of a module"],
)
def test_what_goes_together_passes(given):
    config = composed("grpo").copy()
    for key, value in given.items():
        OmegaConf.update(config, key, value)
    check_values(config)


def test_every_key_of_the_tables_is_some_recipes():
    absent = object()
    of_rules = [rule.keys.items() for rule in rules.table()[0]]
    keys = [
        f"{group}.{name.rstrip('~')}" for one in of_rules for group, names in one for name in names
    ]
    keys.remove("trainer.remove_previous_ckpt_in_save")  # read, but in no tree of verl's
    trees = [composed(recipe) for recipe in RECIPES]
    for key in keys:
        assert any(OmegaConf.select(tree, key, default=absent) is not absent for tree in trees), key


COLOCATE, SEPARATE = "coding.mode=colocate_async", "coding.mode=separate_async"


@pytest.mark.parametrize("recipe", ["grpo", "repair", "harbor"])
@pytest.mark.parametrize(
    ("asked", "mode", "versions", "corrected"),
    [
        ([], "sync", 1, False),
        ([COLOCATE], "colocate_async", 2, True),
        ([COLOCATE, "coding.max_staleness=0"], "colocate_async", 1, False),
        ([SEPARATE, "coding.max_staleness=4"], "separate_async", 5, True),
    ],
)
def test_the_mode_and_the_bound_choose_verls_keys(recipe, asked, mode, versions, corrected):
    config = compose_recipe(recipe, ["hardware=cpu", *asked])
    check_values(config)
    v1, correction = config.trainer.v1, config.algorithm.rollout_correction
    assert v1.trainer_mode == f"coding_{mode}"
    assert v1.sampler.max_off_policy_threshold == versions
    assert v1.sampler.max_off_policy_strategy == "drop"
    found = (correction.rollout_is, correction.bypass_mode)
    assert found == (("token", False) if corrected else (None, True))
    if mode != "sync":
        assert v1[mode].num_warmup_batches == min(1, versions - 1)


@pytest.mark.parametrize("profile", ["gpu_1x", "gpu_8x", "gpu_multi"])
def test_gpu_profiles_generate_on_nodes_of_their_own(profile):
    asked = [f"hardware={profile}", SEPARATE]
    with pytest.raises(ConfigError, match=rf"^{ROLLOUT}\.nnodes=0: "):
        check_values(compose_recipe("grpo", asked))
    config = compose_recipe("grpo", [*asked, f"{ROLLOUT}.nnodes=1"])
    check_values(config)
    rollout = config.actor_rollout_ref.rollout
    assert rollout.checkpoint_engine.backend == "nccl"
    assert not config.actor_rollout_ref.hybrid_engine


@pytest.mark.parametrize(("overrides", "says"), CASES["not together"])
def test_what_does_not_go_together_is_one_line(overrides, says):
    with pytest.raises(ConfigError) as caught:
        check_values(compose_recipe("grpo", ["hardware=cpu", *overrides]))
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)
