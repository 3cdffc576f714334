"""Against the real sandbox: no honest way to read and write is rejected, no forgery accepted."""

import asyncio

import pytest

from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.types import Call, Limits, Problem, Test, Verdict
from tests.fakes import stdin_problem
from tests.text_cases import text_cases

pytestmark = pytest.mark.sandbox

SUMS = stdin_problem(
    ("3\n1 2 3\n", "6\n1\n2\n3\n"), ("2\n10 -10\n", "0\n10\n-10"), limits=Limits(cpu_s=5, wall_s=20)
)
CALLS = Problem(
    id="fake/call",
    split="test",
    statement="Double it.",
    tests=tuple(
        Test(input=Call(function="solve", args=(n,)), expected=[n, 2 * n]) for n in (3, 7, 11)
    ),
)

CASES = text_cases(__file__, "honest_and_forged.txt")


def programs(kind: str) -> dict[str, str]:
    return {name: source for name, mark, source in CASES if mark == kind}


@pytest.fixture
def verdicts(any_sandbox):
    """Judge programs, by name."""
    grader = ExecutionGrader(any_sandbox, stop_early=False)

    async def judge(problem: Problem, programs: dict[str, str]) -> dict[str, Verdict]:
        judged = (grader.grade_code(problem, program) for program in programs.values())
        return dict(zip(programs, await asyncio.gather(*judged), strict=True))

    return judge


async def test_honest_programs_are_accepted(verdicts):
    for name, verdict in (await verdicts(SUMS, programs("honest"))).items():
        assert verdict.passed, (name, verdict.results)


async def test_forged_scripts_are_rejected(verdicts):
    for name, verdict in (await verdicts(SUMS, programs("script"))).items():
        assert not verdict.passed, name
        assert verdict.pass_fraction == 0, name


async def test_forged_calls_are_rejected(verdicts):
    forged = await verdicts(CALLS, programs("call"))
    for name, verdict in forged.items():
        assert not verdict.passed, name
        assert verdict.pass_fraction == 0, name
    honest = await verdicts(CALLS, {"honest": "def solve(n): return n, 2 * n"})
    assert honest["honest"].passed
