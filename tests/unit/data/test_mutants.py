"""Mutants are one change away from their program, of many kinds; a plain run tells which are wrong."""

import contextlib
import io

import pytest

from coding_model_project.data.quality.mutants import Operator, mutants, passes_plainly
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Limits,
    Problem,
    Status,
    Stdin,
    Test,
)
from tests.fakes import FakeSandbox
from tests.tables import tables
from tests.text_cases import sources

SOURCES = sources(__file__)

CASES = tables("mutants")

SOURCE = SOURCES["source"]


def run(source, given):
    """Runs our own small programs here, as a sandbox would."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(source, {"input": lambda: given.text})
    except Exception as error:  # noqa: BLE001 - a mutant may raise anything
        return Execution(status=Status.raised, stderr_tail=repr(error))
    return Execution(status=Status.finished, stdout=printed.getvalue())


def test_every_operator_changes_one_thing():
    found = list(mutants(SOURCE))
    assert {mutant.operator for mutant in found} == set(Operator)
    assert len({mutant.code for mutant in found}) == len(found)
    for mutant in found:
        compile(mutant.code, "m", "exec")
        changed = sum(a != b for a, b in zip(SOURCE.split(), mutant.code.split(), strict=False))
        assert changed >= 1
    first = [mutant.operator for mutant in found[: len(Operator)]]
    assert len(set(first)) == len(Operator), "operators take turns"


@pytest.mark.parametrize(("source", "operator", "becomes"), CASES["operators"])
def test_operators(source, operator, becomes):
    assert becomes in [m.code for m in mutants(source) if m.operator == operator]


@pytest.mark.parametrize("source", ["def broken(", "\0", "x = 'a' '", ""])
def test_what_does_not_parse_has_no_mutants(source):
    assert list(mutants(source)) == []


def test_the_main_guard_is_left_alone():
    assert all(
        "__name__ == '__main__'" in mutant.code
        for mutant in mutants("if __name__ == '__main__':\n    print(input())")
    )


def problem(*tests):
    return Problem(id="fake/1", split="train", statement="?", tests=tests)


CALLS = problem(
    Test(input=Call(function="f", args=([1, 2],)), expected=[2, (1, 0.5)]),
    Test(input=Call(function="f", args=([3, float("inf")],)), expected=[float("inf"), (3, 0.5)]),
)
ASSERTS = problem(
    Test(input=Asserts(source="assert f(1) == 2")), Test(input=Asserts(source="f(2)"))
)
SCRIPTS = problem(Test(input=Stdin("4"), expected="8 0.5\n"))


@pytest.mark.parametrize(
    ("problem", "source", "passes"),
    [
        (CALLS, "def f(xs):\n    print('noise')\n    return xs[1], [xs[0], 0.5]", True),
        (CALLS, "class Solution:\n    def f(self, xs):\n        return xs[1], [xs[0], 0.5]", True),
        (CALLS, "def f(xs):\n    return xs[1], [xs[0], 0.6]", False),
        (CALLS, "def f(xs):\n    return f", False),
        (CALLS, "def g(xs):\n    return 1", False),
        (ASSERTS, "def f(n):\n    return n * 2", True),
        (ASSERTS, "def f(n):\n    return n * 3", False),
        (SCRIPTS, "print(int(input()) * 2, 0.5000000001)", True),
        (SCRIPTS, "print(int(input()) * 2 + 0.0, 0.5)", False),
        (SCRIPTS, "print(8)", False),
    ],
)
async def test_a_plain_run(problem, source, passes):
    assert await passes_plainly(problem, source, FakeSandbox(answer=run), Limits()) is passes


async def test_the_order_of_a_set_is_not_its_value():
    """{8, 0} and a copy of it may give their items in another order; a table of 32 shows that."""
    grown = "(lambda s: (s.update(range(100, 120)), s.difference_update(range(100, 120)), s)[2])({0, 8})"
    ordered = problem(
        Test(input=Asserts(source=f"assert f({grown}) == tuple(set([*{grown}]))", entry_point="f"))
    )
    program = "def f(s):\n    return tuple(s)"
    fake = FakeSandbox(answer=run)
    assert await passes_plainly(ordered, program, fake, Limits(), rebuilt=True)
    for right in (CALLS, ASSERTS, SCRIPTS):
        wrong = "def f(xs):\n    return 5\nprint(5)"
        assert not await passes_plainly(right, wrong, fake, Limits(), rebuilt=True)
