"""The Ray that a run joins, and the error if none answers."""

from __future__ import annotations

import socket

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ClusterError, ConfigError
from coding_model_project.launch.checks.machine_checks import check_head, joined_ray


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
