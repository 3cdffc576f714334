"""The bash agent through verl's own trainer in real containers, one of which is lost in the middle."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest

from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.environment.containers import ContainerEnvironments
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from coding_model_project.runs.rollouts import read_all_rollouts, read_ungradable
from recipes.harbor.__main__ import RECIPE
from tests.end_to_end.shell_world import taught_model
from tests.end_to_end.test_harbor_training import prepared, steps_of
from tests.unit.harbor.places import PROGRAMS, engine, listed, write_image

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(1200)]

MORE_PROGRAMS = ["cp", "mv", "sort", "wc", "uniq", "tac", "tr", "cut", "ln", "cmp", "diff"]


def in_images(tasks: Path, program: str) -> None:
    """Have the tasks start from an image of this machine's programs, since none can be fetched."""
    base = tasks.parent / "base"
    write_image(base, programs=[*PROGRAMS, *MORE_PROGRAMS])
    subprocess.run(
        [program, "build", "--quiet", "--tag", "localhost/tinyshell", str(base)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for dockerfile in tasks.glob("*/environment/Dockerfile"):
        _, rest = dockerfile.read_text().split("\n", 1)
        dockerfile.write_text(f"FROM localhost/tinyshell\n{rest}")


def remove_a_container(program: str, stop: threading.Event, removed: list[str]) -> None:
    """Remove the first container that is there when four are at work."""
    while not stop.wait(0.2):
        names = listed(program)
        if len(names) >= 4:
            subprocess.run([program, "rm", "--force", names[0]], check=False, capture_output=True)
            removed.append(names[0])
            return


def test_a_run_in_containers_trains_and_leaves_out_what_a_lost_one_held(tmp_path, in_ray):
    program = engine()
    taught_model(tmp_path / "model")
    overrides = [
        *prepared(tmp_path),
        f"coding.harbor.environment={program}",
        "coding.harbor.integrity=any",
        "coding.harbor.containers=4",
        "coding.bash.command_s=60",
    ]
    in_images(tmp_path / "tasks", program)
    stop, removed = threading.Event(), []
    remover = threading.Thread(target=remove_a_container, args=(program, stop, removed))
    remover.start()
    try:
        carry_out(RECIPE, compose_recipe("harbor", overrides))
    finally:
        stop.set()
        remover.join()
    lost = list(read_ungradable(tmp_path / "run"))
    assert removed and [one.error for one in lost] == ["EnvironmentFailed"]
    steps = steps_of(tmp_path / "run")
    assert [step["judge/infra_rate"] for step in steps] == [1 / 16, 0.0]
    episodes = list(read_all_rollouts(tmp_path / "run"))
    assert len(episodes) == 31
    assert any(one.reward > 0 for one in episodes)
    assert listed(program) == []


def test_honest_tasks_have_equal_verdicts_in_containers_and_in_rooms(tmp_path):
    program = engine()
    prepared(tmp_path)
    tasks = sorted((tmp_path / "tasks").iterdir())
    in_rooms = verdicts(EmbeddedEnvironments(), tasks)
    in_images(tmp_path / "tasks", program)
    assert verdicts(ContainerEnvironments(program, at_once=2), tasks) == in_rooms
    assert all(rewards == {"reward": 1.0} for rewards in in_rooms)


def verdicts(made, tasks):
    """Rewards of each task's own solution."""

    async def body():
        async with made as environments:
            trials = Trials(environments)
            return [(await trials.run(load_task(task), Oracle())).rewards for task in tasks]

    return asyncio.run(body())
