"""Chooses the grader that a problem asks for."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from coding_model_project.grading.base import HARBOR_IDENTITY
from coding_model_project.grading.breaker import CircuitBreaker
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.limiter import Limiter
from coding_model_project.types import Problem, Verdict

if TYPE_CHECKING:
    from coding_model_project.grading.harbor import HarborGrader


class GraderByProblem:
    """A problem with a Harbor task is judged by its verifier, any other by running it on its tests.

    An async context manager. Harbor's grader is imported for the first problem that has a task: it
    takes most of the import time of a judge and needs pydantic, and most judges see no task.

    Args:
        limiter: as of `HarborGrader`.
        breaker: as of `HarborGrader`.
    """

    def __init__(
        self, execution: ExecutionGrader, *, limiter: Limiter, breaker: CircuitBreaker | None = None
    ) -> None:
        self._execution = execution
        self._limiter, self._breaker = limiter, breaker
        self._harbor: HarborGrader | None = None

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
        if self._harbor is not None:
            await self._harbor.__aexit__(exc_type, exc, traceback)

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """See `grading.base.CodeGrader`."""
        chosen = self._execution if problem.task is None else self._harbor_grader()
        return await chosen.grade_code(problem, code, extraction=extraction)

    def answered_from_memory(self) -> None:
        """See `grading.base.CodeGrader`."""
        self._execution.answered_from_memory()

    def _harbor_grader(self) -> HarborGrader:
        if self._harbor is None:
            from coding_model_project.grading.harbor import HarborGrader

            self._harbor = HarborGrader(limiter=self._limiter, breaker=self._breaker)
        return self._harbor
