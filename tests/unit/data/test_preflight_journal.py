"""A preflight resumes from its journal, and its result is the same as in one go."""

import asyncio
from dataclasses import replace

import orjson
import pytest

from coding_model_project import cli
from coding_model_project.cli import judging
from coding_model_project.cli.options import Resumable
from coding_model_project.data.problems import write_problems
from coding_model_project.data.quality.preflight import Preflight, check_all, result_key
from coding_model_project.errors import SandboxError
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from tests.fakes import FakeSandbox, stdin_problem
from tests.preflights import preflight
from tests.unit.data.test_mutants import run

GOLD = "n = int(input())\nif n > 3:\n    print(n * 2)\nelse:\n    print(0)"


def problems(n=30):
    """Good ones, one whose gold fails, one without gold, and two of one id."""
    made = [
        stdin_problem(("4", "8"), ("3", "0"), id=f"toy/{i}", gold=(GOLD,), bad=("print(1)",))
        for i in range(n)
    ]
    made[3] = replace(made[3], gold=("print(7)",))
    made[4] = replace(made[4], gold=())
    made[20] = replace(made[20], id="toy/1")
    return made


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """The fake that the next command judges by."""
    monkeypatch.setenv("CODING_DATA_CACHE", str(tmp_path / "cache"))

    def use(**given):
        fake = FakeSandbox(answer=run, **given)
        monkeypatch.setattr(judging, "embedded_sandbox", lambda *_: fake)
        return fake

    return use


def test_a_journal_holds_all_that_was_found(tmp_path, sandbox):
    made = problems()
    whole = asyncio.run(preflight(made, FakeSandbox(answer=run), mutants_per_problem=2))
    assert whole.quarantined.keys() == {"toy/1", "toy/3", "toy/4"}
    assert whole.mutation.problems == 26
    how = judging.Checking(
        sandbox=SandboxConfig(), where=Resumable(journal=tmp_path / "kept.jsonl"), mutants=2
    )
    for n_calls in (True, False):
        fake = sandbox()
        found = asyncio.run(judging.run_preflight(made, how, lambda *_: None))
        assert found == whole
        assert bool(fake.calls) is n_calls


def test_what_a_result_depends_on_is_in_its_key():
    problem = problems(30)[0]
    key = result_key(problem, (), "s")
    assert key == result_key(replace(problem), [], "s")
    assert key != result_key(problem, (), "other")
    assert key != result_key(problem, [("duplicate id", "2")], "s")
    assert key != result_key(replace(problem, bad=("print(2)",)), (), "s")


async def test_a_failure_costs_its_problem_and_an_outage_ends_soon():
    asked = []

    async def once(problem, found):
        asked.append(problem.id)
        if problem.id == "toy/2":
            raise SandboxError("a hiccup")
        return Preflight(problems=1)

    with pytest.raises(SandboxError, match=r"1 of 30 problems could not be checked \(a hiccup\)"):
        await check_all(problems(), once)
    assert len(asked) == 30
    asked.clear()

    async def down(problem, found):
        asked.append(problem)
        raise SandboxError("down")

    with pytest.raises(SandboxError, match="30 of 30"):
        await check_all(problems(), down, at_once=1)
    assert len(asked) == 3


def test_the_command_resumes_from_its_journal(tmp_path, sandbox, capsys):
    made = [one for one in problems() if one.id not in ("toy/1", "toy/3", "toy/4")]
    write_problems(tmp_path / "p.jsonl", made)
    command = ["data", "preflight", "mine", "--path", str(tmp_path / "p.jsonl"), "--json"]
    kept = ["--journal", str(tmp_path / "kept.jsonl")]
    sandbox()
    assert cli.main(command) == 0
    whole = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    sandbox(failures=1)
    assert cli.main([*command, *kept]) == 3
    assert "repeat the command with --journal FILE" in capsys.readouterr().err
    fake = sandbox()
    assert cli.main([*command, *kept]) == 0
    captured = capsys.readouterr()
    assert "resuming with 25 results" in captured.err
    assert len(fake.calls) == 3, "the problem that failed: gold, bad and idle"
    assert orjson.loads(captured.out.splitlines()[-1]) | {"seconds": 0} == whole | {"seconds": 0}
