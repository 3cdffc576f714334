"""The keys that `coding.mode` sets, and those that it refuses, each in one line."""

from __future__ import annotations

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.checks import check_values
from coding_model_project.launch.compose import compose_recipe

pytestmark = pytest.mark.slow

COLOCATE, SEPARATE = "coding.mode=colocate_async", "coding.mode=separate_async"
ROLLOUT = "actor_rollout_ref.rollout"
SYNC_STEP = "trainer.v1.separate_async.parameter_sync_step"


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


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["coding.mode=async"], "coding.mode=async: "),
        (["coding.max_staleness=2"], "coding.max_staleness=2: coding.mode=sync"),
        ([COLOCATE, "coding.max_staleness=-1"], "coding.max_staleness=-1: set it to a whole"),
        ([COLOCATE, "trainer.v1.trainer_mode=sync"], "trainer.v1.trainer_mode=sync: "),
        *(
            ([COLOCATE, override], f"{override}: ")
            for override in (
                "trainer.v1.sampler.max_off_policy_threshold=8",
                "trainer.v1.sampler.max_off_policy_strategy=wait",
                "trainer.v1.sampler.custom_sampler.path=mine.py",
                "trainer.v1.colocate_async.num_warmup_batches=2",
                "algorithm.rollout_correction.bypass_mode=true",
                "algorithm.rollout_correction.rollout_is=null",
                f"{ROLLOUT}.calculate_log_probs=false",
                f"{ROLLOUT}.full_determinism=true",
            )
        ),
        ([COLOCATE, "coding.training.sampler=online"], "coding.training.sampler=online with"),
        ([COLOCATE, "experiment=stable"], "coding.training.max_resampling="),
        ([SEPARATE, "actor_rollout_ref.hybrid_engine=true"], "actor_rollout_ref.hybrid_engine="),
        ([SEPARATE, f"{ROLLOUT}.checkpoint_engine.backend=naive"], f"{ROLLOUT}.checkpoint_engine"),
        ([SEPARATE, f"{SYNC_STEP}=2"], f"{SYNC_STEP}=2: data.train_batch_size=32 has 1 "),
        ([SEPARATE, "actor_rollout_ref.actor.ppo_mini_batch_size=24"], "data.train_batch_size=32 "),
        ([SEPARATE, f"{ROLLOUT}.n_gpus_per_node=0"], f"{ROLLOUT}.n_gpus_per_node=0: "),
    ],
)
def test_what_does_not_go_together_is_one_line(overrides, says):
    with pytest.raises(ConfigError) as caught:
        check_values(compose_recipe("grpo", ["hardware=cpu", *overrides]))
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)
