"""Checks before a training: its model on the hub, by one question, and its Harbor tasks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from huggingface_hub import constants
from omegaconf import OmegaConf

from coding_model_project.episodes.bash import BashConfig
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.harbor_config import AgentConfig, HarborConfig
from coding_model_project.launch.checks import checks, episode_checks
from coding_model_project.launch.checks.checks import check_model
from coding_model_project.types import Problem
from tests.answering import answering
from tests.unit.harbor.folders import folder

KEY = "actor_rollout_ref.model.path"


@pytest.fixture(autouse=True)
def _asks_again(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    checks._why_not.cache_clear()
    yield
    checks._why_not.cache_clear()


@pytest.fixture
def hub(monkeypatch):
    hub = SimpleNamespace(answer=(200, None), asked=[])

    def answer(_, path, __):
        if not path.startswith("/api/"):  # the library's own question, once a day
            hub.asked.append(path)
        code, error = hub.answer
        headers = {"ETag": '"1"', "Content-Length": "2"}
        return code, headers | ({"X-Error-Code": error} if error else {}), b""

    with answering(answer) as url:
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


@pytest.mark.parametrize("answer", [(200, None), (404, "EntryNotFound"), (429, None), (503, None)])
def test_a_model_of_the_hub_passes_and_is_asked_for_once(hub, answer):
    hub.answer = answer
    check_model(KEY, "some/model")
    check_model(KEY, "some/model")
    assert hub.asked == ["/some/model/resolve/main/config.json"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((404, "RepoNotFound"), "check the name"),
        ((401, "RepoNotFound"), "set HF_TOKEN"),
        ((403, "GatedRepo"), "accept its terms at http"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_refused(hub, answer, says):
    hub.answer = answer
    with pytest.raises(ConfigError) as refused:
        check_model(KEY, "nope/model")
    assert str(refused.value).startswith(f"{KEY}=nope/model: no such folder here, and ")
    assert says in str(refused.value)
    assert len(hub.asked) == 1


def test_a_hub_that_cannot_be_reached_is_refused_with_the_reason(monkeypatch):
    nobody = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", nobody)
    with pytest.raises(ConfigError, match=r"cannot be reached \(.*Error.*; download the mo"):
        check_model(KEY, "nope/model")
    checks._why_not.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"cannot be reached \(HF_HUB_OFFLINE"):
        check_model(KEY, "nope/model")


def test_a_model_in_the_hubs_cache_needs_no_hub(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "snapshots" / "abc" / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    check_model(KEY, "some/model")


# ── environments of Harbor's tasks: names, numbers and engines that a training refuses at its start


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
