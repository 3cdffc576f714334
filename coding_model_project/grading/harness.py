"""The grader of problems whose tests run in the candidate's own process (`Problem.harness`).

The tests of some data sets are code in the candidate's language that calls its functions (HumanEval-X) or
replaces modules under it (BigCodeBench). Such tests cannot run elsewhere, and their word is the process's
word. So that a program which ends early, or fails, is not taken for one that passes, the program is given
a text that nobody knew before, and the harness writes it out only after the last test.

A program that means to cheat can read that text itself, and write it: every verdict says
`integrity="in_process"`, and data sets that are judged so are for evaluation only.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from typing import Self

from coding_model_project.errors import DataError
from coding_model_project.grading.base import CodeGrader
from coding_model_project.grading.go_imports import with_used_imports
from coding_model_project.types import ErrorType, Harness, Problem, Stdin, Test, TestResult, Verdict

_MAINS = {
    "cpp": re.compile(r"\bint\s+main\s*(?=\()"),
    "go": re.compile(r"\bfunc\s+main\s*(?=\()"),
    "rust": re.compile(r"\bfn\s+main\s*(?=\()"),
}
"""What one program cannot have twice: models write whole ones, with a `main` to show the function."""


class HarnessGrader:
    """Judges programs within their problem's harness. An async context manager.

    Args:
        execution: the grader that runs programs.
    """

    def __init__(self, execution: CodeGrader) -> None:
        self._execution = execution

    @property
    def identity(self) -> str:
        """All but code and problem that a verdict depends on."""
        return f"{self._execution.identity}/harness"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a program by whether its harness came to its end.

        Raises:
            DataError: the problem has no harness.
            SandboxError: the sandbox failed.
        """
        if problem.harness is None:
            raise DataError(f"problem {problem.id}: has no harness")
        word = secrets.token_hex(16)
        inner = replace(
            problem,
            tests=(Test(Stdin(word), expected=word),),
            comparison="last_line",
            harness=None,
        )
        whole = None if code is None else whole_program(problem.harness, code, problem.language)
        verdict = await self._execution.grade_code(inner, whole, extraction=extraction)
        return replace(
            verdict,
            code=code,
            results=tuple(map(_told, verdict.results)),
            comparison="harness",
            integrity="in_process",
        )

    def answered_from_memory(self) -> None:
        """See `grading.base.CodeGrader`."""


def whole_program(harness: Harness, code: str, language: str) -> str:
    """The one program that a harness and a candidate's program are."""
    if language in _MAINS:
        code = _MAINS[language].sub(
            lambda found: found[0].replace("main", "main_of_candidate"), code
        )
    if language == "go":
        code = with_used_imports(code)
    return f"{harness.before}{code}\n{harness.after}"


def _told(result: TestResult) -> TestResult:
    """The result without the text that the program was given: it would differ at each judging."""
    if result.error is not ErrorType.wrong_answer:
        return result
    _, _, got = result.detail.partition(", got ")
    return replace(result, detail=f"the tests were not passed; the program printed {got}")
