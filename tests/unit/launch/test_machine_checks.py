"""What a training on GPUs needs of its host is said before it starts, with the keys to set."""

import importlib.util

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import machine_checks
from coding_model_project.launch.compose import compose_recipe

UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"


@pytest.fixture
def host(monkeypatch):
    """Eight CPUs, and nothing built beside the pinned packages."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(machine_checks.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_one_gpu_and_eight_cpus_are_enough_for_its_profile(host):
    machine_checks.check_cpus(compose_recipe("grpo", ["hardware=gpu_1x"]))


def test_storage_units_that_leave_no_cpu_are_refused(host):
    config = compose_recipe("grpo", ["hardware=gpu_1x", f"{UNITS}=8"])
    with pytest.raises(ConfigError) as caught:
        machine_checks.check_cpus(config)
    said = str(caught.value)
    assert "must reserve 12 CPUs, and it counts 8 here" in said
    assert said.endswith(f"set {UNITS}=4, or ray_kwargs.ray_init.num_cpus=12")
    machine_checks.check_cpus(compose_recipe("grpo", ["hardware=gpu_1x", f"{UNITS}=4"]))


def test_a_cluster_is_not_judged_by_the_host_that_joins_it(host, monkeypatch):
    config = compose_recipe("grpo", ["hardware=gpu_8x"])
    with pytest.raises(ConfigError, match="wait for ever"):
        machine_checks.check_cpus(config)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    machine_checks.check_cpus(config)
    machine_checks.check_attention(config, "actor_rollout_ref.model")


@pytest.mark.parametrize(
    ("recipe", "model_key"), [("grpo", "actor_rollout_ref.model"), ("sft", "model")]
)
def test_attention_that_is_not_installed_is_refused(recipe, model_key, host, monkeypatch):
    way = f"+{model_key}.override_config.attn_implementation=sdpa"
    config = compose_recipe(recipe, ["hardware=gpu_1x"])
    with pytest.raises(ConfigError) as caught:
        machine_checks.check_attention(config, model_key)
    assert str(caught.value).endswith(f"or set {way}")
    machine_checks.check_attention(compose_recipe(recipe, ["hardware=gpu_1x", way]), model_key)
    machine_checks.check_attention(compose_recipe(recipe, ["hardware=cpu"]), model_key)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found")
    machine_checks.check_attention(config, model_key)
