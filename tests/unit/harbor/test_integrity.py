"""Forgeries against typical verifiers, and the uses of integrity."""

import asyncio
import json
from dataclasses import replace

import pytest

from coding_model_project.cli import main
from coding_model_project.grading.limiter import Limiter
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.checking import check
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.harbor.integrity import Accepted, Integrity, NotIsolatedError, require
from coding_model_project.harbor.trial import Trials
from coding_model_project.types import Problem
from tests.unit.harbor.rooms import run_in_environments
from tests.unit.harbor.verifier_cases import FORGERIES, IN_PROCESS, ISOLATED

pytestmark = pytest.mark.sandbox

ELSE = "\n[ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n"
AT_ONCE = 4


def made(folder, test, solve, files=None):
    """Return a case's task."""
    content = {
        "instruction.md": "Do it.\n",
        "task.toml": "",
        "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\n",
        "tests/test.sh": f"#!/bin/bash\n{test}{ELSE}",
        "solution/solve.sh": f"#!/bin/bash\n{solve}\n",
        **(files or {}),
    }
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return load_task(folder)


def tried(tmp_path, cases):
    """Return the outcome of each case."""

    async def use(environments):
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number, case):
            async with places:
                task = made(tmp_path / str(number), *case)
                return await Trials(environments).run(task, Oracle())

        outcomes = await asyncio.gather(*(one(n, case) for n, case in enumerate(cases.values())))
        return dict(zip(cases, outcomes, strict=True))

    return run_in_environments(use)


def told(outcome):
    said = outcome.steps[-1].verifier_output if outcome.steps else ""
    return outcome.rewards, outcome.error, outcome.doubts, said


def test_no_forgery_is_both_rewarded_and_isolated(tmp_path):
    outcomes = tried(tmp_path, FORGERIES)
    forged = {
        name: told(outcome)
        for name, outcome in outcomes.items()
        if (outcome.rewards or {}).get("reward", 1) and outcome.integrity is Integrity.isolated
    }
    assert forged == {}


@pytest.mark.parametrize(
    ("cases", "integrity"),
    [(ISOLATED, Integrity.isolated), (IN_PROCESS, Integrity.in_process)],
)
def test_honest_work_keeps_its_reward(tmp_path, cases, integrity):
    outcomes = tried(tmp_path, cases)
    lost = {
        name: told(outcome)
        for name, outcome in outcomes.items()
        if outcome.rewards != {"reward": 1.0} or outcome.integrity is not integrity
    }
    assert lost == {}


def test_an_exit_that_skips_the_interpreters_end_is_a_failure(tmp_path):
    check_it = {
        "tests/check.py": "import sys\nsys.path.insert(0, '/app')\nimport m\nassert False\n"
    }
    leaves = "echo 'import os; os._exit(0)' > /app/m.py"
    test = "python3 /tests/check.py; echo $(( $? == 0 )) > /logs/verifier/reward.txt"
    outcome = tried(tmp_path, {"leaves": (test, leaves, check_it)})["leaves"]
    assert outcome.rewards == {"reward": 0} and outcome.integrity is Integrity.in_process


def test_training_takes_only_the_rewards_that_it_may(tmp_path):
    task = made(tmp_path / "t", *IN_PROCESS["uses all of a module"])
    problem = replace(Problem.simple("Do it.", tests=[]), task=str(task.path), language="bash")

    async def judged(_):
        async with HarborGrader(limiter=Limiter(1)) as grader:
            return await grader.grade_code(problem, (task.path / "solution/solve.sh").read_text())

    verdict = run_in_environments(judged)
    assert verdict.passed and verdict.integrity == "in_process"
    require(verdict, Accepted.any)
    with pytest.raises(NotIsolatedError, match=r"coding\.harbor\.integrity=any"):
        require(verdict, Accepted.isolated)


UNCHECKED = "[ -e /app/answer ] && echo 1 > /logs/verifier/reward.txt"
BY_CHANCE = "[ -s /app/answer ] && echo 1.$RANDOM$RANDOM > /logs/verifier/reward.txt"


def test_check_names_what_is_wrong_with_a_task(tmp_path):
    tasks = [
        made(tmp_path / "forgeable", *IN_PROCESS["a package"]),
        made(tmp_path / "free", "echo 1 > /logs/verifier/reward.txt", "true"),
        made(tmp_path / "good", *ISOLATED["output"]),
        made(tmp_path / "unsolved", *ISOLATED["output"][:1], "true"),
        made(tmp_path / "unchecked", UNCHECKED, "echo 42 > /app/answer"),
        made(tmp_path / "by_chance", BY_CHANCE, "echo 42 > /app/answer"),
    ]

    async def use(environments):
        found = check(tasks, Trials(environments), concurrency=4)
        return {one.task: one async for one in found}

    checked = run_in_environments(use)
    found = {name: one.problems for name, one in checked.items()}
    assert "can be forged" in found["forgeable"][0] and "__init__.py" in found["forgeable"][0]
    assert found["free"] == ("doing nothing earns reward=1.0, expected less than 1",)
    assert found["good"] == ()
    assert found["unsolved"] == ("its own solution earns reward=0.0, expected at least 1",)
    assert "one that leaves files with nothing in them" in found["unchecked"][0]
    assert "different rewards in 3 runs: 1 × {'reward': 1." in found["by_chance"][0]
    assert checked["good"].runs == ({"reward": 1.0},) * 3 and checked["good"].forged == ()
    assert "exits where its program is imported" in checked["forgeable"].forged


@pytest.mark.soak  # every forgery in every verifier; the test above has one of each kind
@pytest.mark.timeout(600)
def test_no_forgery_is_believed_by_a_sound_verifier(tmp_path):
    """Rewarded forgeries are `in_process`, so training drops them."""
    tasks = [
        made(tmp_path / str(number), *case)
        for number, case in enumerate((ISOLATED | IN_PROCESS).values())
    ]

    async def use(environments):
        found = check(tasks, Trials(environments), concurrency=4, runs=1)
        return [one async for one in found]

    names = [*(ISOLATED | IN_PROCESS)]
    believed = {
        names[int(one.task)]: problem
        for one in run_in_environments(use)
        for problem in one.problems
        if "agents that do not do the task" in problem
    }
    assert believed == {}


def test_the_command_checks_as_it_is_asked(tmp_path, capsys):
    made(tmp_path / "good", *ISOLATED["output"])
    made(tmp_path / "gpu", *ISOLATED["output"], {"task.toml": "[environment]\ngpus = 1\n"})
    command = ["harbor", "check", str(tmp_path), "--runs", "2", "--no-forgeries"]
    assert main([*command, "--workers", "2"]) == 1
    good, gpu = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["ok"] and good["runs"] == [{"reward": 1.0}] * 2 and good["forged"] == []
    assert not gpu["ok"] and "no accelerators" in gpu["problems"][0]
    assert main(["harbor", "check", str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such folder of Harbor tasks" in capsys.readouterr().err
