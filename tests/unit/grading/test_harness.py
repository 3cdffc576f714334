"""Problems whose tests share the candidate's process: verdicts, and their details."""

import sys
from types import SimpleNamespace

import pytest

from coding_model_project.data.loaders import LOADERS
from coding_model_project.data.loaders.humaneval_x import harness
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.harbor_config import Accepted, NotIsolatedError, require
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import supervisor
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.types import ErrorType, Harness, Limits, Problem
from tests.fakes import judge_of
from tests.tables import tables
from tests.unit.data.rows import published as rows

LIMITS = Limits(cpu_s=10.0, wall_s=30.0)


SPOKEN = {name: SimpleNamespace(**parts) for name, parts in tables("harness").items()}
"""Tests of `twice(x)` by language, and parts of programs; @ in a function is its body's statement."""


def needs(language: str) -> None:
    try:
        toolchains.toolchain(language, supervisor.strongest(Tier.rlimit, sys.executable))
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def graded(any_sandbox):
    """Judge programs by a grader of their own."""

    async def judge(problem: Problem, *programs: str):
        grader = judge_of(any_sandbox)
        return [await grader.grade_code(problem, one) for one in programs]

    return judge


@pytest.mark.slow
@pytest.mark.parametrize("language", SPOKEN)
async def test_tests_as_humaneval_x_publishes_them(graded, language):
    needs(language)
    spoken = SPOKEN[language]
    problem = Problem(
        id="x/1", split="test", statement="?", tests=(), limits=LIMITS, language=language,
        harness=harness(language, spoken.tests),
    )  # fmt: skip

    bodies = [spoken.right, spoken.noise, spoken.wrong, spoken.ends, spoken.fails, "return (("]
    programs = [spoken.function.replace("@", body) for body in bodies]
    right, noise, wrong, ends, fails, broken = await graded(problem, *programs)
    (main,) = await graded(problem, programs[0] + spoken.main)
    for verdict in (right, main, noise):
        assert verdict.passed, verdict.results
    assert wrong.error is ErrorType.wrong_answer
    assert "a test failed" in wrong.results[0].detail
    assert ends.error in (ErrorType.wrong_answer, ErrorType.runtime_error)
    assert fails.error is ErrorType.runtime_error
    assert broken.error in (ErrorType.compile_error, ErrorType.syntax_error)
    assert {verdict.integrity for verdict in (right, wrong)} == {"in_process"}


BIGCODEBENCH = LOADERS["bigcodebench"]
PYTHON = BIGCODEBENCH.to_problem(rows.BIGCODEBENCH, BIGCODEBENCH.published.parts[0], 0)


async def test_tests_as_bigcodebench_publishes_them(graded):
    demo = "if __name__ == '__main__':\n    raise SystemExit(twice(input()))\n"
    right, wrong, crashes, skips, ends, empty = await graded(
        PYTHON,
        PYTHON.gold[0] + f"\n\n{demo}",
        "def twice(x):\n    return json.loads(str(3 * x))\n",
        "def twice(x):\n    return undefined\n",
        "def twice(x):\n    import unittest\n    raise unittest.SkipTest\nTestCases = None\n",
        "def twice(x):\n    import os\n    print('ok')\n    os._exit(0)\n",
        "",
    )
    assert right.passed, right.results
    assert wrong.error is crashes.error is ErrorType.wrong_answer
    assert "test_two" in wrong.results[0].detail
    assert "test_it_uses_json" not in wrong.results[0].detail
    assert ends.error is ErrorType.wrong_answer
    assert not empty.passed
    assert skips.passed, "a skipped test is no failure where the publisher runs it, either"


async def test_no_program_passes_by_what_an_earlier_one_was_given(graded):
    says_all = "import sys\nprint(sys.stdin.read())\nraise SystemExit(3)\n"
    shown, repeated = await graded(PYTHON, says_all, "print('0' * 32)\nraise SystemExit(0)\n")
    assert shown.error is ErrorType.runtime_error
    assert repeated.error is ErrorType.wrong_answer


async def test_who_reads_the_text_can_write_it_and_training_refuses_such_verdicts(graded):
    (forged,) = await graded(
        PYTHON, "import os, sys\nprint(sys.stdin.read(), flush=True)\nos._exit(0)\n"
    )
    assert forged.passed, "the tests share the program's process: this cannot be told from a pass"
    assert forged.integrity == "in_process"
    with pytest.raises(NotIsolatedError, match="bigcodebench/7"):
        require(forged, Accepted.isolated)


async def test_a_verdict_does_not_depend_on_the_text_that_was_given(graded):
    (first,) = await graded(PYTHON, "twice = str\n")
    (second,) = await graded(PYTHON, "twice = str\n")
    assert first.results[0].detail == second.results[0].detail


async def test_a_problem_of_ones_own(graded, tmp_path):
    problem = Problem(
        id="mine/1", split="test", statement="?", tests=(),
        harness=Harness(after="assert f(1) == 2\nprint(input())"),
    )  # fmt: skip
    right, wrong = await graded(problem, "f = lambda x: x + 1", "f = lambda x: x")
    assert right.passed
    assert wrong.error is ErrorType.runtime_error
