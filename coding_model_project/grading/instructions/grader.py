"""The grader of instruction-following problems, with one result per instruction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from coding_model_project.errors import DataError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.instructions import check_arguments, follows, follows_loosely
from coding_model_project.types import ErrorType, Instruction, Problem, TestResult, Verdict

COMPARISON = "strict"


def check_instructions(problems: Iterable[Problem]) -> None:
    """Validate the instructions of problems.

    Raises:
        DataError: a kind is unknown, or its arguments do not fit; names the problem.
        NotInstalledError: a library for the checks is missing.
    """
    for problem in problems:
        for one in problem.instructions:
            try:
                check_arguments(one.kind, one.arguments)
            except DataError as error:
                raise DataError(f"problem {problem.id}: {error}") from error


class InstructionsGrader:
    """A grader of texts by `Problem.instructions`, without a sandbox.

    The strict rules decide a verdict. `Verdict.followed_loosely` counts the instructions that the text
    follows without its first or last line, or without "*".
    """

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a text.

        Raises:
            DataError: an instruction of the problem is unknown, or its arguments do not fit.
        """
        if not problem.instructions:
            raise DataError(f"problem {problem.id} has no instructions")
        started = time.monotonic()
        results, loosely = (), 0
        if code is not None:
            results, loosely = await asyncio.to_thread(_judged, problem, code)
        return Verdict(
            problem_id=problem.id,
            code=code,
            extraction=extraction,
            results=results,
            n_tests=len(problem.instructions),
            comparison=COMPARISON,
            sandbox="none",
            grader_version=GRADER_VERSION,
            followed_loosely=loosely,
            judge_s=time.monotonic() - started,
        )


def _judged(problem: Problem, text: str) -> tuple[tuple[TestResult, ...], int]:
    """Return a result per instruction by the strict rules, and the number followed by the loose rules.

    Raises:
        DataError: an instruction is unknown, or its arguments do not fit; names the problem.
    """
    try:
        results = tuple(_result(one, text) for one in problem.instructions)
        loosely = sum(
            result.error is None or follows_loosely(one.kind, one.arguments, text)
            for one, result in zip(problem.instructions, results, strict=True)
        )
    except DataError as error:
        raise DataError(f"problem {problem.id}: {error}") from error
    return results, loosely


def _result(one: Instruction, text: str) -> TestResult:
    if follows(one.kind, one.arguments, text):
        return TestResult(error=None)
    return TestResult(error=ErrorType.wrong_answer, detail=f"does not follow {one.kind}")
