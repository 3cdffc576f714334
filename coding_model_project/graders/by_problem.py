"""Chooses the grader that a problem asks for."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.graders.execution import ExecutionGrader
from coding_model_project.graders.harbor import HarborGrader
from coding_model_project.types import Problem, Verdict


@dataclass(frozen=True, slots=True)
class GraderByProblem:
    """A problem with a Harbor task is judged by its verifier, any other by running it on its tests."""

    execution: ExecutionGrader
    harbor: HarborGrader

    @property
    def identity(self) -> str:
        """All but code and problem that a verdict depends on."""
        return f"{self.execution.identity}+{self.harbor.identity}"

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """See `graders.base.CodeGrader`."""
        chosen = self.harbor if problem.task is not None else self.execution
        return await chosen.grade_code(problem, code, extraction=extraction)

    def answered_from_memory(self) -> None:
        """See `graders.base.CodeGrader`."""
        self.execution.answered_from_memory()
