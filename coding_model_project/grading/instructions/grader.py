"""The grader of instruction-following problems: a result per instruction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Self

from coding_model_project.errors import DataError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.instructions import check_arguments, follows, follows_loosely
from coding_model_project.types import ErrorType, Instruction, Problem, TestResult, Verdict


def check_instructions(problems: Iterable[Problem]) -> None:
    """Make sure that every instruction can be checked.

    Raises:
        DataError: a kind is unknown, or its arguments do not fit; names the problem.
        NotInstalledError: a library that checks are made with is missing.
    """
    for problem in problems:
        for one in problem.instructions:
            try:
                check_arguments(one.kind, one.arguments)
            except DataError as error:
                raise DataError(f"problem {problem.id}: {error}") from error


class InstructionsGrader:
    """Judges a text by `Problem.instructions`; it needs no sandbox. An async context manager.

    Args:
        loose: accept a text that follows an instruction without its first or last line, or without
            "*" (IFEval's loose accuracy). A reward is strict.
    """

    def __init__(self, *, loose: bool = False) -> None:
        self._loose = loose

    @property
    def identity(self) -> str:
        """All but text and problem that a verdict depends on."""
        return f"{GRADER_VERSION}/{self._rule}"

    @property
    def _rule(self) -> str:
        return "loose" if self._loose else "strict"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a text.

        Raises:
            DataError: an instruction of the problem is unknown, or its arguments do not fit.
        """
        if not problem.instructions:
            raise DataError(f"problem {problem.id}: has no instructions to check")
        started = time.monotonic()
        results = () if code is None else await asyncio.to_thread(self._results, problem, code)
        return Verdict(
            problem_id=problem.id,
            code=code,
            extraction=extraction,
            results=results,
            n_tests=len(problem.instructions),
            comparison=self._rule,
            sandbox="none",
            grader_version=GRADER_VERSION,
            judge_s=time.monotonic() - started,
        )

    def answered_from_memory(self) -> None:
        """See `grading.base.CodeGrader`."""

    def _results(self, problem: Problem, text: str) -> tuple[TestResult, ...]:
        try:
            return tuple(self._result(problem, one, text) for one in problem.instructions)
        except DataError as error:
            raise DataError(f"problem {problem.id}: {error}") from error

    def _result(self, problem: Problem, one: Instruction, text: str) -> TestResult:
        check = follows_loosely if self._loose else follows
        if check(one.kind, one.arguments, text):
            return TestResult(error=None)
        return TestResult(error=ErrorType.wrong_answer, detail=f"does not follow {one.kind}")
