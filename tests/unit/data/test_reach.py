"""Rows are made of problems whose tests reach the program, and each is judged once."""

import warnings

import pytest

import coding_model_project as cmp
from coding_model_project import cli
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.quality.mutants import idle_program
from coding_model_project.data.quality.reach import remember, unreached
from coding_model_project.errors import SandboxError
from coding_model_project.types import Asserts, Call, Problem, Test
from tests.fakes import FakeSandbox, stdin_problem
from tests.preflights import preflight
from tests.unit.data.test_mutants import run


def good(name="mine/0", **fields):
    return stdin_problem(
        ("4", "8"), id=name, split="train", **{"gold": ("print(int(input()) * 2)",)} | fields
    )


def printing_nothing(name="mine/1"):
    return stdin_problem(("4", ""), id=name, split="train")


PROBLEMS = [good(), printing_nothing(), good("mine/2", gold=("print(7)",))]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CODING_DATA_CACHE", str(tmp_path / "cache"))


async def faults(problems, sandbox):
    by_id = {one.id: one for one in problems}
    return {
        name: kind for name, (kind, _) in (await unreached(list(by_id), by_id, sandbox)).items()
    }


async def test_each_problem_is_judged_once_and_again_when_it_has_changed():
    sandbox = FakeSandbox(answer=run)
    found = await faults(PROBLEMS, sandbox)
    assert found == {"mine/1": "accepts a program that does nothing", "mine/2": "gold rejected"}
    n_calls = len(sandbox.calls)
    assert await faults(PROBLEMS, sandbox) == found
    assert len(sandbox.calls) == n_calls
    assert await faults([good("mine/2", gold=("print(8)",))], sandbox) == {}
    assert len(sandbox.calls) == n_calls + 2


async def test_an_outage_is_no_fault_and_what_was_judged_before_it_is_kept():
    with pytest.raises(SandboxError):
        await faults(PROBLEMS, FakeSandbox(failures=100))
    assert len(await faults(PROBLEMS, FakeSandbox(answer=run))) == 2


async def test_a_preflight_spares_rows_the_judge():
    sandbox = FakeSandbox(answer=run)
    for one in PROBLEMS:
        remember(one, await preflight([one], sandbox), sandbox.identity)
    sandbox.calls.clear()
    assert len(await faults(PROBLEMS, sandbox)) == 2
    assert sandbox.calls == []


def problem(*inputs, **fields):
    tests = tuple(Test(input=one, expected=1) for one in inputs)
    return Problem(id="a/1", split="train", statement="?", tests=tests, **fields)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (problem(Call(function="f", args=())), "f(1, key=2)"),
        (problem(Call(function="Box.size", args=())), "Box(3).size()"),
        (problem(Asserts(source="assert g(1) == 1", entry_point="g")), "g()"),
        (
            problem(Asserts(source="x = [1]\nfor y in x: assert Sum().of(y) == len(x)")),
            "Sum().of(1)",
        ),
    ],
)
def test_entry_points_exist_and_return_none(given, used):
    names: dict = {}
    exec(idle_program(given), names)
    assert eval(used, names) is None
    assert set(names) == {used.split("(")[0], "__builtins__"}


def test_compiled_functions_and_answers_have_no_idle_program():
    assert idle_program(problem(Call(function="f", args=()), language="cpp")) is None
    assert idle_program(problem(answer="7")) is None
    assert "main" in (idle_program(stdin_problem(("1", "1"), language="rust")) or "")


def test_rows_leave_out_what_failed_the_check_and_say_if_there_was_none(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(cli.options, "embedded_sandbox", lambda *_: FakeSandbox(answer=run))
    write_problems(tmp_path / "p.jsonl", PROBLEMS)
    command = ["data", "rows", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "out")]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert "mine/1: accepts a program that does nothing" in said.err
    assert "mine/2: gold rejected" in said.err
    assert "3 problems' tests checked" in said.out
    assert [one.id for one in read_problems(tmp_path / "out" / "problems.jsonl")] == ["mine/0"]
    assert cli.main([*command, "--no-check"]) == 0
    assert "--no-check" in capsys.readouterr().out
    assert len(read_problems(tmp_path / "out" / "problems.jsonl")) == 3


@pytest.mark.sandbox
def test_loaded_problems_are_checked_on_demand(tmp_path):
    write_problems(tmp_path / "p.jsonl", PROBLEMS)
    with pytest.warns(
        UserWarning, match="left out 2 problems that failed the check; the first: mine/1"
    ):
        checked = cmp.load(tmp_path / "p.jsonl", check=True)
    assert [one.id for one in checked] == ["mine/0"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(cmp.load(tmp_path / "p.jsonl")) == 3
