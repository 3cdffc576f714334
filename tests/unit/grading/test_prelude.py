"""Names that a publisher's harness gives programs, and those that it must not give them."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.prelude import contest_prelude, with_prelude
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Asserts, Call, ErrorType, Problem, Stdin, Test
from tests.tables import tables

CASES = tables("prelude")

LIMIT = "__import__('sys').setrecursionlimit(50000)"
CONTEST = contest_prelude([]).replace(LIMIT, "")


def every_name() -> dict:
    """The names of the whole prelude as they are now: other tests may replace such as `sys.path`."""
    names: dict = {}
    exec(CONTEST.replace("import numpy as np", ""), names)
    return names


def ran(code: str, prelude: str = CONTEST) -> dict:
    names: dict = {"__name__": "main"}
    exec(compile(with_prelude(prelude, code), "main.py", "exec"), names)
    return names


@pytest.mark.parametrize("code", CASES["names"])
def test_names_of_the_harness_are_there(code):
    assert ran(code)


def test_builtins_stay_what_they_are():
    assert ran("x = pow(2, 5, 7), sum([1, 2]), open")["x"] == (4, 3, open)


def test_numpy_is_imported_only_for_programs_that_name_it():
    assert "numpy" not in with_prelude(CONTEST, "print(npm)")
    assert "import numpy as np\n" in with_prelude(CONTEST, "print(np.zeros(1))")


@given(st.lists(st.sampled_from(sorted(every_name())), max_size=5))
def test_leaving_out_other_names_changes_nothing(words):
    found = ran(f"x = [{', '.join(words)}]")["x"]
    names = every_name()
    assert all(one is names[word] for one, word in zip(found, words, strict=True))


def test_a_prelude_of_a_data_set_imports_nothing_outside_the_sandbox():
    before = set(sys.modules)
    assert "from antigravity import *" in with_prelude("from antigravity import *", "fly()")
    assert set(sys.modules) == before


def test_a_helper_has_the_names_that_it_needs():
    helper = "import math\ndef area(r):\n    return math.pi * r"
    assert ran("x = area(1)", helper)["x"] == pytest.approx(3.14159, abs=1e-5)


def test_a_function_that_tests_call_comes_from_the_program_alone():
    tests = [Test(Call("gcd", (4, 6)), expected=2), Test(Asserts("assert comb(2, 1)", "comb"))]
    names = ran("x = lcm(2, 3)", contest_prelude(tests).replace(LIMIT, ""))
    assert names["x"] == 6
    assert not {"gcd", "comb"} & names.keys()
    assert "Solution" not in contest_prelude([Test(Call("Solution().gcd", (4, 6)), expected=2)])


def test_a_program_that_does_not_parse_is_left_to_the_compiler():
    with pytest.raises(SyntaxError):
        ran("from __future__ import annotations\nx = (")


@pytest.mark.sandbox
async def test_the_judge_runs_it():
    calls = (
        Test(Call("Solution().climb", (5,)), expected=15),
        Test(Call("Solution().climb", (5000,)), expected=12502500),
    )
    climb = (
        "class Solution:\n def climb(self, n: List) -> int:\n  return n and n + self.climb(n - 1)"
    )
    stolen = (Test(Call("gcd", (4, 6)), expected=2),)
    script = (Test(Stdin("4 6"), expected="2"),)
    async with EmbeddedSandbox(workers=1, min_tier="rlimit") as sandbox:
        grader = ExecutionGrader(sandbox, stop_early=False)

        async def judged(tests, code, prelude):
            problem = Problem.simple("A problem.", tests=tests)
            verdict = await grader.grade_code(replace(problem, prelude=prelude), code)
            return verdict.error

        assert await judged(calls, climb, "") is ErrorType.runtime_error
        assert await judged(calls, climb, contest_prelude(calls)) is None
        assert await judged(stolen, "pass", contest_prelude(stolen)) is ErrorType.runtime_error
        reads = "print(gcd(*map(int, stdin.readline().split())))"
        assert await judged(script, reads, contest_prelude(script)) is None
