"""Against the real sandbox: no honest way to read and write is rejected, no forgery accepted."""

import asyncio
import contextlib

import psutil
import pytest

from coding_model_project.errors import UngradableError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Call, ErrorType, Limits, Problem, Test, Verdict
from tests.fakes import stdin_problem
from tests.processes import below
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


async def test_errors_by_how_a_program_ends(verdicts):
    ends = {
        "def solve(n) return": ErrorType.syntax_error,
        "def solve(n): return 1 / 0": ErrorType.runtime_error,
        "def other(n): return 1": ErrorType.runtime_error,
        "def solve(n):\n    while True: pass": ErrorType.timeout,
        "import ctypes\ndef solve(n): ctypes.string_at(0)": ErrorType.runtime_error,
        "def solve(n): return 'x' * (1 << 33)": ErrorType.memory_limit,
        "def solve(n): print('x' * (1 << 22)); return [n, 2 * n]": ErrorType.output_limit,
        "def solve(n): return [2 * n, n]": ErrorType.wrong_answer,
    }
    tests = CALLS.tests[:1]
    problem = stdin_problem(tests=tests, limits=Limits(cpu_s=0.5, wall_s=5, memory_mb=256))
    for code, verdict in (await verdicts(problem, {code: code for code in ends})).items():
        assert verdict.error == ends[code], (code, verdict.results)


async def test_a_killed_sandbox_gives_no_verdict():
    slow = "import time\ndef solve(n):\n    time.sleep(60)"

    async def kill_for_ever() -> None:
        while True:
            for process in below("embedded.zygote"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            await asyncio.sleep(0.2)

    async with EmbeddedSandbox(workers=1) as sandbox:
        grader = ExecutionGrader(sandbox, stop_early=True)
        killing = asyncio.create_task(kill_for_ever())
        try:
            with pytest.raises(UngradableError):
                await grader.grade_code(CALLS, slow)
        finally:
            killing.cancel()
