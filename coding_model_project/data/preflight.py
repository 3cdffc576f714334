"""Is a data set fit to grade by? Its gold solutions must pass and its known-bad ones must fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace

from coding_model_project.graders.execution import ExecutionGrader
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import Problem, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What came of a data set's own solutions."""

    problems: int
    gold_accepted: int
    """Problems that have gold solutions, all of them accepted."""
    bad_total: int
    bad_rejected: int
    seconds: float
    """Wall seconds of judging the gold solutions."""
    complaints: tuple[str, ...]
    """A line per gold solution rejected and per known-bad one accepted."""
    without_gold: int = 0

    @property
    def passed(self) -> bool:
        return not self.complaints


async def preflight(
    problems: Sequence[Problem],
    sandbox: Sandbox,
    *,
    max_concurrency: int = 16,
    progress: Callable[[], None] | None = None,
) -> Preflight:
    """Judge gold solutions by all of a problem's tests, known-bad ones by the hidden tests.

    Args:
        max_concurrency: programs handed to the sandbox at once.
        progress: called after each program.

    Raises:
        UngradableError: a problem's data is unusable, or the sandbox failed.
    """
    grader = ExecutionGrader(
        sandbox, bare=True, stop_early=True, slots=asyncio.Semaphore(max_concurrency)
    )

    async def judge(problem: Problem, code: str) -> Verdict:
        verdict = await grader.grade_code(problem, code)
        if progress is not None:
            progress()
        return verdict

    started = time.monotonic()
    everything = [_all_hidden(problem) for problem in problems]
    gold = await _each(judge, [(problem, code) for problem in everything for code in problem.gold])
    seconds = time.monotonic() - started
    bad = await _each(judge, [(problem, code) for problem in problems for code in problem.bad])
    rejected_gold = {verdict.problem_id for verdict in gold if not verdict.passed}
    complaints = [
        *(f"{v.problem_id}: gold rejected: {_why(v)}" for v in gold if not v.passed),
        *(f"{v.problem_id}: known-bad accepted: {v.code!r:.200}" for v in bad if v.passed),
    ]
    return Preflight(
        problems=len(problems),
        gold_accepted=sum(bool(p.gold) and p.id not in rejected_gold for p in problems),
        bad_total=len(bad),
        bad_rejected=sum(not verdict.passed for verdict in bad),
        seconds=seconds,
        complaints=tuple(complaints),
        without_gold=sum(not problem.gold for problem in problems),
    )


async def _each(
    judge: Callable[[Problem, str], Coroutine[None, None, Verdict]],
    work: Sequence[tuple[Problem, str]],
) -> list[Verdict]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(judge(problem, code)) for problem, code in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _all_hidden(problem: Problem) -> Problem:
    """With its public tests among those it is judged by."""
    return replace(problem, tests=tuple(replace(test, public=False) for test in problem.tests))


def _why(verdict: Verdict) -> str:
    number, result = next(
        (i, result) for i, result in enumerate(verdict.results) if result.error is not None
    )
    detail = " ".join(result.detail.split())
    return f"test {number}: {result.error}: {detail[-200:]}"
