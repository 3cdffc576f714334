"""The environment `auto`: rooms, or a container engine, or a line that says what is missing."""

import asyncio
import os

import pytest

from coding_model_project.grading.base import AUTO, TaskEnvironment
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.environment.base import EnvironmentFailed, ImageError
from coding_model_project.harbor.environment.factory import (
    check_supported,
    environments_of,
    lacking_engine,
)
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from tests.unit.harbor.folders import folder, program
from tests.unit.harbor.rooms import need_rooms

STAGES = "FROM golang:1.24 AS made\nFROM debian\nCOPY --from=made /a /a\n"


@pytest.fixture
def no_engine(tmp_path, monkeypatch):
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    lacking_engine.cache_clear()
    yield
    lacking_engine.cache_clear()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A container engine that responds, and builds nothing."""
    made = program(
        tmp_path / "bin/podman", '[ "$1" = ps ] && exit 0; echo builds nothing >&2; exit 1'
    )
    monkeypatch.setenv("PATH", f"{made.parent}:{os.environ['PATH']}")
    lacking_engine.cache_clear()
    yield
    lacking_engine.cache_clear()


def made(path, dockerfile):
    check = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
    files = {"tests__test_sh": check, "solution__solve_sh": "#!/bin/bash\n"}
    return load_task(folder(path, environment__Dockerfile=dockerfile, **files))


def outcomes(*tasks):
    async def use():
        async with environments_of(TaskEnvironment()) as environments:
            trials = Trials(environments)
            return [await trials.run(task, Oracle()) for task in tasks]

    need_rooms()
    return asyncio.run(use())


@pytest.mark.sandbox
def test_without_an_engine_simple_tasks_run_and_others_say_how_to_get_one(tmp_path, no_engine):
    simple = made(tmp_path / "simple", "FROM debian\nWORKDIR /app\n")
    fails = made(tmp_path / "fails", "FROM debian\nRUN apt-get install -y jq\n")
    stages = made(tmp_path / "stages", STAGES)
    first, *others = outcomes(simple, fails, stages, fails)
    assert (first.error, first.rewards) == (None, {"reward": 1.0})
    places = ("Dockerfile:2: RUN", "Dockerfile:1", "Dockerfile:2")
    for one, where in zip(others, places, strict=True):
        assert one.exception == "SandboxBuildFailedError" and one.rewards is None
        assert where in str(one.error) and "apt-get install podman" in str(one.error)


@pytest.mark.sandbox
def test_with_an_engine_it_builds_what_rooms_cannot_and_what_fetches_its_tools(tmp_path, engine):
    """Rooms have no network, and so no verdict for a verifier that needs one."""
    fails = made(tmp_path / "fails", "FROM debian\nRUN false\n")
    task = made(tmp_path / "t", "FROM debian\n")
    script = task.path / "tests" / "test.sh"
    script.write_text(f"#!/bin/bash\n# curl x\necho uvx; true || curl -s x\n{script.read_text()}")
    for ended in outcomes(fails, task):
        assert ended.exception == "SandboxBuildFailedError"
        assert "podman build: builds nothing" in str(ended.error)
    assert f"since {script}:3: curl needs a network" in str(ended.error)


@pytest.mark.sandbox
def test_an_engine_that_does_not_respond_is_an_outage_of_one_task(tmp_path, monkeypatch):
    """The next task looks again: engines are busy at times."""
    again = tmp_path / "again"
    busy = f"[ -e {again} ] && exit 0; touch {again}; echo too busy >&2; exit 1"
    script = f'[ "$1" = ps ] && {{ {busy}; }}; echo builds nothing >&2; exit 1'
    podman = program(tmp_path / "bin/podman", script)
    program(tmp_path / "bin/docker", "echo no daemon >&2; exit 1")
    monkeypatch.setenv("PATH", f"{podman.parent}:{os.environ['PATH']}")
    stages = made(tmp_path / "stages", STAGES)
    first, second = outcomes(stages, stages)
    assert isinstance(first.error, EnvironmentFailed)
    assert "too busy" in str(first.error) and "no daemon" in str(first.error)
    assert isinstance(second.error, ImageError) and "builds nothing" in str(second.error)


@pytest.mark.sandbox
def test_without_an_engine_it_is_tried_in_a_room(tmp_path, no_engine):
    task = made(tmp_path / "t", "FROM debian\n")
    script = task.path / "tests" / "test.sh"
    script.write_text(f"#!/bin/bash\npip install x; true\n{script.read_text()}")
    (ended,) = outcomes(task)
    assert (ended.error, ended.rewards) == (None, {"reward": 1.0})


def test_a_task_that_cannot_run_is_known_before_the_start(tmp_path, no_engine):
    check_supported(AUTO, made(tmp_path / "simple", "FROM debian\n"))
    with pytest.raises(ImageError, match=r"golang.*no engine is here.*apt-get install podman"):
        check_supported(AUTO, made(tmp_path / "stages", STAGES))


def test_with_an_engine_that_task_can_run(tmp_path, engine):
    check_supported(AUTO, made(tmp_path / "stages", STAGES))


def test_a_machine_with_neither_says_so(no_engine, monkeypatch):
    async def fails(_):
        raise EnvironmentFailed("this machine cannot make rooms")

    async def use():
        async with environments_of(TaskEnvironment()):
            pass

    monkeypatch.setattr(EmbeddedEnvironments, "__aenter__", fails)
    with pytest.raises(EnvironmentFailed, match="cannot make rooms"):
        asyncio.run(use())
