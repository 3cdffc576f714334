"""Problems with several right outputs, judged by the program that they ship."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coding_model_project.data.problems import problem_from_json, problem_line
from coding_model_project.errors import CheckerError, DataError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import EmbeddedSandbox, supervisor
from coding_model_project.types import Checker, ErrorType, Execution, Problem, Protocol, Status
from tests.fakes import FakeSandbox, stdin_problem
from tests.text_cases import text_cases

(_, _, SUMS), (_, _, SCORE) = text_cases(__file__, "checkers.txt")


def sums(source: str = SUMS, **fields: object) -> Problem:
    """Any two numbers with a given sum."""
    problem = stdin_problem(("5", "SECRET"), ("7", "SECRET"))
    checker = Checker(source=source, **fields)
    return replace(problem, comparison="checker", checker=checker)


@pytest.fixture(scope="module", params=[Tier.namespaces, Tier.seccomp])
async def judge(request):
    if problem := supervisor.why_not(request.param, sys.executable):
        pytest.skip(f"tier {request.param} does not work here: {problem}")
    async with EmbeddedSandbox(workers=1, tier=request.param) as sandbox:
        yield ExecutionGrader(sandbox, stop_early=False)


@pytest.mark.sandbox
async def test_rulings(judge):
    for code, errors in (
        ("print(1, int(input()) - 1)", [None, None]),
        ("print(2, 3)", [None, ErrorType.wrong_answer]),
        ("print(2)", [ErrorType.wrong_answer] * 2),
        ("1 / 0", [ErrorType.runtime_error] * 2),
    ):
        verdict = await judge.grade_code(sums(), code)
        assert [result.error for result in verdict.results] == errors
        assert verdict.comparison == "checker"
        assert code != "print(2, 3)" or verdict.results[1].detail == "they do not add up"
    scored = sums(SCORE, protocol=Protocol.score)
    assert (await judge.grade_code(scored, "print(1, int(input()) - 1)")).passed
    assert not (await judge.grade_code(scored, "print(0)")).passed


@pytest.mark.sandbox
@pytest.mark.parametrize("source", ["def f(:", "import os\nos._exit(3)", "1 / 0"])
async def test_a_broken_checker_is_no_verdict(judge, source):
    with pytest.raises(CheckerError, match="problem fake/1"):
        await judge.grade_code(sums(source), "print(2, 3)")


@pytest.mark.sandbox
async def test_an_output_that_crashes_the_checker_is_wrong(judge):
    """Or a policy could learn to print what has no verdict, and so no loss."""
    tests = stdin_problem(("5", "1 4"), ("7", "3 4")).tests
    verdict = await judge.grade_code(replace(sums(), tests=tests), "print('crash')")
    assert [result.error for result in verdict.results] == [ErrorType.wrong_answer] * 2
    assert "no such case" in verdict.results[0].detail
    with pytest.raises(CheckerError, match="no such case"):  # nor does it accept the answer, here
        await judge.grade_code(sums(), "print('crash')")


@pytest.mark.sandbox
async def test_the_answer_is_nowhere_near_the_candidate(judge):
    prefix = Path(sys.prefix).parts  # the environment is visible at its own path, here below /tmp
    mounted = prefix[2] if prefix[1] == "tmp" else ""
    code = f"""
import glob, sys
here, there = ([n for n in glob.glob(p) if not n.endswith({mounted!r} or "/")] for p in ("*", "/tmp/*"))
print(sys.argv, here, there, open(0).read())
"""
    verdict = await judge.grade_code(sums("import sys\nsys.exit(open(sys.argv[2]).read())"), code)
    assert verdict.results[0].detail == "['main.py'] [] [] 5"


async def test_stopping_early_stops_at_the_checkers_first_rejection():
    def answer(source: str, given: object) -> Execution:
        if source == "checker":
            return Execution(status=Status.raised, exit_code=1, stderr_tail="no")
        return Execution(status=Status.finished)

    grader = ExecutionGrader(FakeSandbox(answer), stop_early=True)
    verdict = await grader.grade_code(sums("checker"), "program")
    assert [result.error for result in verdict.results] == [ErrorType.wrong_answer]
    assert verdict.n_tests == 2


@pytest.mark.parametrize(
    "printed", ["rejected: 1", "0 1", "1\n1", "inf", "1e9", "nan", "1e400", "-1", "١", ""]
)
async def test_a_score_is_the_checkers_whole_output_and_at_most_one(printed):
    """Or a checker that repeats the judged output would let a program print its own score."""

    def answer(source: str, given: object) -> Execution:
        judged = source != "checker" or given.contents["output"] != given.contents["answer"]
        said = printed if source == "checker" and judged else "1.0\n"
        return Execution(status=Status.finished, stdout=said)

    grader = ExecutionGrader(FakeSandbox(answer), stop_early=False)
    verdict = await grader.grade_code(sums("checker", protocol=Protocol.score), "program")
    assert [result.error for result in verdict.results] == [ErrorType.wrong_answer] * 2


async def test_a_time_out_of_the_checker_is_no_verdict():
    def answer(source: str, given: object) -> Execution:
        status = Status.cpu_timeout if source == "checker" else Status.finished
        return Execution(status=status)

    grader = ExecutionGrader(FakeSandbox(answer), stop_early=False)
    with pytest.raises(CheckerError, match="cpu_timeout"):
        await grader.grade_code(sums("checker"), "program")


async def test_a_checker_and_its_comparison_come_together():
    grader = ExecutionGrader(FakeSandbox(), stop_early=False)
    with pytest.raises(DataError, match="comparison='tokens' with a checker: expected"):
        await grader.grade_code(replace(sums(), comparison="tokens"), "x")
    with pytest.raises(DataError, match="comparison='checker' with no checker: expected"):
        await grader.grade_code(replace(sums(), checker=None), "x")


def test_a_file_of_problems_keeps_it():
    import orjson

    problem = sums(SCORE, protocol=Protocol.score)
    row = orjson.loads(problem_line(problem))
    assert problem_from_json(row, "here") == problem
    with pytest.raises(DataError, match=r"checker\.protocol.*testlib, score.*fuzzy"):
        problem_from_json({**row, "checker": {"source": "", "protocol": "fuzzy"}}, "here")
