import asyncio

import pytest

from coding_model_project.errors import DataError, UngradableError
from coding_model_project.grading.base import judge_completions
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.types import Execution, Status, Verdict
from tests.fakes import FakeSandbox, stdin_problem

PROBLEMS = [stdin_problem(("", str(i)), id=f"fake/{i}") for i in range(5)]


class SlowFirst(FakeSandbox):
    """Later programs finish before earlier ones."""

    async def run(self, program, inputs, limits, *, stop_when=None):
        await asyncio.sleep(0.02 / (1 + len(self.calls)))
        return await super().run(program, inputs, limits, stop_when=stop_when)


def grader(sandbox):
    return CachedGrader(ExecutionGrader(sandbox, stop_early=False), bare=True)


async def test_order_is_kept_and_progress_told():
    seen = []
    texts = [[str(i), "x", ""] for i in range(5)]
    outcomes = await judge_completions(PROBLEMS, texts, grader(SlowFirst()), seen.append)
    assert len(seen) == 15
    for i, (right, wrong, empty) in enumerate(outcomes):
        assert (right.problem_id, right.passed) == (f"fake/{i}", True)
        assert (wrong.code, empty.code) == ("x", None)


async def test_what_cannot_be_graded_takes_its_place_and_stops_nobody():
    problems = [PROBLEMS[0], stdin_problem(), PROBLEMS[2]]
    outcomes = await judge_completions(problems, [["0"], ["1"], ["2"]], grader(FakeSandbox()))
    assert isinstance(outcomes[1][0], DataError)
    assert [isinstance(group[0], Verdict) for group in outcomes] == [True, False, True]
    down = await judge_completions(PROBLEMS, [["1"]] * 5, grader(FakeSandbox(failures=9)))
    assert all(isinstance(group[0], UngradableError) for group in down)


async def test_a_bug_is_not_swallowed():
    def answer(source, given):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await judge_completions(PROBLEMS, [["1"]] * 5, grader(FakeSandbox(answer)))


async def test_the_bound_holds():
    sandbox = FakeSandbox(lambda *_: Execution(status=Status.finished), delay_s=0.002)
    await judge_completions(PROBLEMS, [list("1234")] * 5, grader(sandbox), max_concurrency=4)
    assert sandbox.most_running == 4


async def test_groups_must_match_problems():
    with pytest.raises(ValueError, match="groups"):
        await judge_completions(PROBLEMS, [["1"]], grader(FakeSandbox()))
