"""Tests are ordered by the wrong programs that they reject, with figures on quality and cost."""

import json
from dataclasses import replace

import pytest

from coding_model_project import cli
from coding_model_project.cli import options
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.quality.test_order import (
    additional_greedy,
    first_rejection,
    ordered,
    select_tests,
)
from coding_model_project.errors import ConfigError
from coding_model_project.types import Execution, Status, Test
from tests.fakes import FakeSandbox, stdin_problem
from tests.unit.data.test_mutants import run

GOLD = "print(abs(int(input())))"
BAD = ("print(int(input()))", "print(1)", "print(-int(input()))", "print(0)", "print(5)")


def absolute(name="fake/1", **fields):
    """Its first two tests are alike; the fourth rejects all bad programs but one, which those reject."""
    pairs = ("1", "1"), ("1", "1"), ("0", "0"), ("-2", "2"), ("5", "5")
    return stdin_problem(
        *pairs, id=name, **{"gold": (GOLD,), "bad": BAD, "split": "train"} | fields
    )


def sets(*texts):
    return [frozenset(map(int, text)) for text in texts]


@pytest.mark.parametrize(
    ("rejects", "order"),
    [
        (sets("0", "012", "3"), (1, 2, 0)),
        (
            sets("01", "01", "2"),
            (0, 2, 1),
        ),  # ties go to the earlier; a new round once all are covered
        (sets("", "", "0"), (2, 0, 1)),
        (sets("", ""), (0, 1)),
        ([], ()),
    ],
)
def test_the_order_is_that_of_a_greedy_cover_in_rounds(rejects, order):
    assert additional_greedy(rejects) == order


def test_an_early_stop_comes_sooner():
    rejects = sets("", "0", "01")
    assert [first_rejection(rejects, (0, 1, 2), program) for program in (0, 1)] == [2, 3]
    assert [first_rejection(rejects, (2, 1, 0), program) for program in (0, 1)] == [1, 1]


async def test_few_tests_reject_what_all_do():
    sandbox = FakeSandbox(answer=run)
    selection = await select_tests([absolute()], sandbox, k=2, mutants_per_problem=0)
    (order,) = selection.orders
    assert order.tests == (3, 0)
    total = selection.total
    assert (total.tests, total.chosen, total.undetected) == (5, 2, 0)
    assert (total.kept.hits, total.kept.total) == (5, 5)
    assert total.as_given.hits < 5, "the first two tests are alike"
    assert total.held_out.hits <= total.kept.hits
    assert total.stopped_as_given > total.stopped_ordered
    assert total.executions == 25
    mutated = await select_tests([absolute(bad=())], sandbox, k=2, mutants_per_problem=9)
    assert mutated.total.kept.total > 0


async def test_problems_whose_tests_say_nothing_keep_them():
    problems = [absolute("fake/1", gold=()), absolute("fake/2", gold=(BAD[0],)), absolute("fake/3")]
    selection = await select_tests(problems, FakeSandbox(answer=run), mutants_per_problem=0)
    assert [order.id for order in selection.orders] == ["fake/3"]
    assert len(selection.orders[0].tests) == 5, "without k all are kept, in their new order"
    assert dict(selection.skipped) == {
        "fake/1": "no gold solution that runs",
        "fake/2": "its gold solution is not accepted",
    }


async def test_a_program_that_never_ends_is_not_run_on_every_test():
    def slow(source, given):
        return Execution(status=Status.cpu_timeout) if "while" in source else run(source, given)

    ran = 0

    def counted(source, given):
        nonlocal ran
        ran += "while" in source
        return slow(source, given)

    problem = absolute(bad=("while True: pass",))
    selection = await select_tests([problem], FakeSandbox(answer=counted), mutants_per_problem=0)
    assert ran == 1
    assert selection.total.kept.total == 1


async def test_orders_are_applied_to_the_tests_they_were_made_for():
    problem = absolute()
    selection = await select_tests([problem], FakeSandbox(answer=run), k=1, mutants_per_problem=0)
    orders = {order.id: order for order in selection.orders}
    public = Test(input=problem.tests[0].input, expected="1", public=True)
    shown = replace(problem, tests=(public, *problem.tests))
    short = ordered(shown, orders[shown.id])
    assert short.public_tests == (public,)
    assert short.hidden_tests == (problem.hidden_tests[orders["fake/1"].tests[0]],)
    other = stdin_problem(("1", "2"), id="fake/1")
    with pytest.raises(ConfigError, match="tests of fake/1 have changed"):
        ordered(other, orders[other.id])


def test_the_command_writes_what_training_rows_take(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(options, "embedded_sandbox", lambda *_: FakeSandbox(answer=run))
    problems, out = tmp_path / "p.jsonl", tmp_path / "order.jsonl"
    write_problems(problems, [absolute("fake/1"), absolute("fake/2", split="validation")])
    select = ["data", "select-tests", "fake", "--path", str(problems), "--out", str(out)]
    assert cli.main([*select, "--k", "2", "--mutants", "0"]) == 0
    said = capsys.readouterr().out
    assert "10/10 = 100.0%" in said
    assert json.loads(said.splitlines()[-1])["chosen"] == 4
    rows = ["data", "rows", str(problems), "--out", str(tmp_path / "rows"), "--tests", str(out)]
    assert cli.main(rows) == 0
    kept = {p.id: len(p.hidden_tests) for p in read_problems(tmp_path / "rows" / "problems.jsonl")}
    assert kept == {"fake/1": 2, "fake/2": 5}, "what is evaluated on keeps all its tests"
    assert cli.main([*rows, "--as", "validation"]) == 2
    out.write_text("{}\n")
    assert cli.main(rows) == 2
    assert "order.jsonl:1" in capsys.readouterr().err
