"""Chooses the grader that a problem asks for."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pkgutil import resolve_name
from types import TracebackType
from typing import Self

from coding_model_project.grading.base import HARBOR_IDENTITY, CodeGrader
from coding_model_project.grading.breaker import CircuitBreaker
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.limiter import Limiter
from coding_model_project.types import Problem, Verdict


class GraderByProblem:
    """A problem with a Harbor task is judged by its verifier, any other by running it on its tests.

    An async context manager. Harbor's grader belongs to a room above this one, and is imported for the
    first problem that has a task: most judges see none.

    Args:
        limiter: as of `ExecutionGrader`.
        breaker: as of `ExecutionGrader`.
    """

    def __init__(
        self, execution: ExecutionGrader, *, limiter: Limiter, breaker: CircuitBreaker | None = None
    ) -> None:
        self._execution = execution
        self._limiter, self._breaker = limiter, breaker
        self._harbor: CodeGrader | None = None
        self._stack = AsyncExitStack()

    @property
    def identity(self) -> str:
        """All but code and problem that a verdict depends on."""
        return f"{self._execution.identity}+{HARBOR_IDENTITY}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """See `grading.base.CodeGrader`."""
        chosen = self._execution if problem.task is None else await self._harbor_grader()
        return await chosen.grade_code(problem, code, extraction=extraction)

    def answered_from_memory(self) -> None:
        """See `grading.base.CodeGrader`."""
        self._execution.answered_from_memory()

    async def _harbor_grader(self) -> CodeGrader:
        if self._harbor is None:
            grader_class = resolve_name("coding_model_project.harbor.grader:HarborGrader")
            grader = grader_class(limiter=self._limiter, breaker=self._breaker)
            self._harbor = grader
            await self._stack.enter_async_context(grader)
            return grader
        return self._harbor
