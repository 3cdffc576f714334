"""A training says what it needs of its host before it starts, with the keys to set."""

from __future__ import annotations

import importlib.util
import socket

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ClusterError, ConfigError
from coding_model_project.launch.checks.machine_checks import (
    check_head,
    choose_attention,
    joined_ray,
    reserved_cpus,
)
from coding_model_project.launch.compose import compose_recipe
from tests.tables import tables

CASES = tables("launch")

POLICY = "actor_rollout_ref.model"


@pytest.fixture
def host(monkeypatch):
    """Nothing built beside the pinned packages."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(("overrides", "cpus"), CASES["profiles"])
def test_what_a_profile_makes_ray_reserve(overrides, cpus):
    assert sum(reserved_cpus(compose_recipe("grpo", overrides))) == cpus


def test_attention_of_a_cluster_is_not_chosen_by_the_host_that_joins_it(host, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert choose_attention(compose_recipe("grpo", ["hardware=gpu_8x"]), POLICY) == ""


@pytest.mark.parametrize(("recipe", "model_key"), [("grpo", POLICY), ("sft", "model")])
def test_sdpa_is_chosen_where_flash_attn_is_not_installed(recipe, model_key, host, monkeypatch):
    key = f"{model_key}.override_config.attn_implementation"
    config = compose_recipe(recipe, ["hardware=gpu_1x"])
    assert choose_attention(config, model_key).startswith(f"{key}=sdpa (flash-attn is not")
    section = config.actor_rollout_ref.model if recipe == "grpo" else config.model
    assert section.override_config.attn_implementation == "sdpa"
    assert choose_attention(config, model_key) == ""  # it is the configuration's own now
    asked = compose_recipe(recipe, ["hardware=gpu_1x", f"+{key}=flash_attention_2"])
    with pytest.raises(ConfigError, match="flash-attn is not installed") as caught:
        choose_attention(asked, model_key)
    assert str(caught.value).endswith(f"or set ++{key}=sdpa")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found")
    assert choose_attention(asked, model_key) == ""
    assert choose_attention(compose_recipe(recipe, ["hardware=cpu"]), model_key) == ""


def test_sequence_parallelism_is_refused_without_flash_attention(host, monkeypatch):
    size = "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"
    config = compose_recipe("grpo", ["hardware=gpu_8x", size])
    with pytest.raises(ConfigError, match=f"{size}: sequence parallelism needs"):
        choose_attention(config, POLICY)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found")
    assert choose_attention(config, POLICY) == ""
    other = f"+{POLICY}.override_config.attn_implementation=sdpa"
    with pytest.raises(ConfigError, match="flash_attention_2"):
        choose_attention(compose_recipe("grpo", ["hardware=gpu_8x", size, other]), POLICY)


# ── the Ray that a run joins, and the error if none answers ───────────────────────────────────────


@pytest.fixture
def no_ray(monkeypatch, tmp_path):
    """A host without a Ray, whose record would be in this folder."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray/ray_current_cluster"


def config(address: str | None = None):
    asked = {} if address is None else {"address": address}
    return OmegaConf.create({"ray_kwargs": {"ray_init": asked}})


def test_a_ray_is_joined_by_key_by_variable_and_by_what_ray_start_left(no_ray, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert joined_ray(config()) is joined_ray(config("auto")) is None
    no_ray.write_text("10.0.0.1:6379")
    assert joined_ray(config()) == joined_ray(config("auto")) == "10.0.0.1:6379"
    no_ray.chmod(0o666)  # another user could have written it
    assert joined_ray(config()) is None
    check_head(config())
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert joined_ray(config("auto")) == "10.0.0.2:6379"
    assert joined_ray(config("10.0.0.3:6379")) == "10.0.0.3:6379"
    assert joined_ray(config("local")) is None


def test_a_head_that_does_not_answer_is_one_line_that_names_the_key(no_ray, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ClusterError, match=r"address=a\.\.b:6379: no Ray head"):
        check_head(config("a..b:6379"))  # a name that no host can have
    with pytest.raises(ClusterError, match=rf"ray_init\.address={address}: no Ray head"):
        check_head(config(address))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ClusterError, match=f"RAY_ADDRESS={address}: no Ray head"):
        check_head(config())
    monkeypatch.delenv("RAY_ADDRESS")
    no_ray.write_text(address)
    with pytest.raises(ClusterError, match=f"ray_current_cluster: {address}: no Ray head"):
        check_head(config())


def test_a_head_that_listens_passes(no_ray):
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_head(config(f"127.0.0.1:{server.getsockname()[1]}"))


@pytest.mark.parametrize("address", ["head", "head:port", "ray://head:10001", ":6379"])
def test_an_address_that_is_none_is_refused(address, no_ray):
    with pytest.raises(ConfigError, match=r"must be HOST:PORT"):
        check_head(config(address))
