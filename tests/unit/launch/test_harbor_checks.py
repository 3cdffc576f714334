"""Environments of Harbor's tasks: names, numbers and engines that a training refuses at its start."""

import pytest
from omegaconf import OmegaConf

from coding_model_project.episodes.bash import BashConfig
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.agent_config import AgentConfig
from coding_model_project.harbor.integrity import HarborConfig
from coding_model_project.launch.checks import episode_checks
from coding_model_project.types import Problem
from tests.unit.harbor.folders import folder

SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
IMAGE = "FROM python:3.12-slim\nCOPY test.sh /tests/\n"


def config(**harbor):
    parts = {"harbor": HarborConfig(**harbor), "agent": AgentConfig(), "bash": BashConfig()}
    return OmegaConf.create(
        {"coding": {name: OmegaConf.structured(part) for name, part in parts.items()}}
    )


def tasks(path, *tomls):
    """Problems of tasks with these task.toml."""
    made = [
        folder(path / f"t{n}", toml, **({"tests__Dockerfile": IMAGE} if toml else {}))
        for n, toml in enumerate(tomls)
    ]
    return [
        Problem(id=one.name, split="train", statement="Do it.", tests=(), task=str(one))
        for one in made
    ]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine that answers; that containers run is for others to test."""
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def test_an_environment_that_is_not_known():
    with pytest.raises(ConfigError, match=r"coding\.harbor\.environment=romms"):
        episode_checks.check_values(config(environment="romms"))


def test_an_engine_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="environment=podman: podman is not installed"):
        episode_checks.check_tasks(config(environment="podman"), tasks(tmp_path, ""))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("where", ["rooms", "podman"])
def test_rewards_that_may_be_forged_are_said_and_refused_if_all_would_be_dropped(
    tmp_path, capsys, where
):
    given = tasks(tmp_path, "", "", SEPARATE)
    episode_checks.check_tasks(config(environment=where), given)
    assert "2 of 3 problems, such as t0" in capsys.readouterr().out
    strict = config(environment=where, integrity="isolated")
    episode_checks.check_tasks(strict, given)
    assert "integrity=isolated drops their samples" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"2 of 2 problems.*integrity=any.*separate"):
        episode_checks.check_tasks(strict, given[:2])
    episode_checks.check_tasks(strict, given[2:])
    assert capsys.readouterr().out == ""
