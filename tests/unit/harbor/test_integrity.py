"""Integrity of rewards: what a verifier can rely on, which rewards train, and `harbor check`."""

import json
from dataclasses import replace

import pytest

from coding_model_project.cli import main
from coding_model_project.grading.retries import Limiter
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.checking import check
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.harbor.harbor_config import Accepted, Integrity, NotIsolatedError, require
from coding_model_project.harbor.trial import Trials
from coding_model_project.types import Problem
from tests.bench.trials import write_task
from tests.unit.harbor.places import run_in_environments

pytestmark = pytest.mark.sandbox

PAID = "echo 1 > /logs/verifier/reward.txt"
ELSE = "\n[ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n"
WRITES = "echo 'print(42)' > /app/solution.py"
RUNS = f'[ "$(python3 /app/solution.py)" = 42 ] && {PAID}'
READS = f"grep -q 42 /app/solution.py && {PAID}"
IMPORTS = f"cd /app && python3 -c 'from solution import f; assert f() == 42' && {PAID}"
FUNCTION = "echo 'def f(): return 42' > /app/solution.py"
APART = {
    "task.toml": 'artifacts = ["/app/solution.py"]\n[verifier]\nenvironment_mode = "separate"\n',
    "tests/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY test.sh /tests/\n",
}


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
    return load_task(write_task(folder, content))


@pytest.mark.parametrize(
    ("case", "integrity"),
    [
        ((RUNS, WRITES), Integrity.in_process),
        ((IMPORTS, FUNCTION), Integrity.in_process),
        ((RUNS, WRITES, APART), Integrity.isolated),
    ],
)
def test_a_reward_is_isolated_by_the_verifiers_own_environment(tmp_path, case, integrity):
    task = made(tmp_path, *case)
    ended = run_in_environments(lambda environments: Trials(environments).run(task, Oracle()))
    assert (ended.error, ended.rewards) == (None, {"reward": 1.0})
    assert ended.integrity is integrity


def test_training_takes_only_the_rewards_that_it_may(tmp_path):
    task = made(tmp_path / "t", IMPORTS, FUNCTION)
    problem = replace(Problem.simple("Do it.", tests=[]), task=str(task.path), language="bash")

    async def judged(_):
        async with HarborGrader(limiter=Limiter(1)) as grader:
            return await grader.grade_code(problem, (task.path / "solution/solve.sh").read_text())

    verdict = run_in_environments(judged)
    assert verdict.passed and verdict.integrity == "in_process"
    require(verdict, Accepted.any)
    with pytest.raises(NotIsolatedError, match=r"separate.*coding\.harbor\.integrity=any"):
        require(verdict, Accepted.isolated)


UNCHECKED = "[ -e /app/answer ] && echo 1 > /logs/verifier/reward.txt"
BY_CHANCE = "[ -s /app/answer ] && echo 1.$RANDOM$RANDOM > /logs/verifier/reward.txt"


def test_check_names_what_is_wrong_with_a_task(tmp_path):
    attacked = [
        made(tmp_path / "forgeable", IMPORTS, FUNCTION),
        made(tmp_path / "apart", RUNS, WRITES, APART),
        made(tmp_path / "good", READS, WRITES, APART),
        made(tmp_path / "shared", READS, WRITES),
        made(tmp_path / "unchecked", UNCHECKED, "echo 42 > /app/answer"),
    ]
    others = [
        made(tmp_path / "free", PAID, "true"),
        made(tmp_path / "unsolved", READS, "true", APART),
        made(tmp_path / "by_chance", BY_CHANCE, "echo 42 > /app/answer"),
    ]

    async def use(environments):
        trials = Trials(environments)
        found = {one.task: one async for one in check(attacked, trials, concurrency=4, runs=2)}
        rest = check(others, trials, concurrency=4, forgers=())
        return found | {one.task: one async for one in rest}

    checked = run_in_environments(use)
    found = {name: one.problems for name, one in checked.items()}
    for name in ("forgeable", "apart"):
        assert "one that exits where its program is imported" in found[name][0]
    assert found["free"] == ("doing nothing earns reward=1.0, expected less than 1",)
    assert found["good"] == found["shared"] == ()
    assert found["unsolved"] == ("its own solution earns reward=0.0, expected at least 1",)
    assert "one that leaves files with nothing in them" in found["unchecked"][0]
    assert "different rewards in 3 runs: 1 × {'reward': 1." in found["by_chance"][0]
    assert checked["good"].runs == ({"reward": 1.0},) * 2 and checked["good"].forged == ()


def test_the_command_checks_as_it_is_asked(tmp_path, capsys):
    made(tmp_path / "good", READS, WRITES, APART)
    made(tmp_path / "gpu", READS, WRITES, {"task.toml": "[environment]\ngpus = 1\n"})
    options = ["--runs", "2", "--no-forgeries", "--environment", "rooms", "--workers", "2"]
    assert main(["harbor", "check", str(tmp_path), *options]) == 1
    good, gpu = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["ok"] and good["runs"] == [{"reward": 1.0}] * 2 and good["forged"] == []
    assert not gpu["ok"] and "no accelerators" in gpu["problems"][0]
    assert main(["harbor", "check", str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such folder of Harbor tasks" in capsys.readouterr().err
