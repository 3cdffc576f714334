"""The grader of problems whose tests run in the candidate's own process (`Problem.harness`).

The tests of some data sets are code in the candidate's language that calls its functions (HumanEval-X)
or patches modules that it uses (BigCodeBench). Such tests cannot run in another process, and their
result is the process's own output. The program receives a random text, and the harness prints it only
after the last test, so a program that exits early or fails does not pass.

Go rejects unused imports. HumanEval-X's imports do not match its own solutions, and its publisher adds
the ones that a program needs. A Go program gets exactly those that it uses.

A cheating program can read that text and print it. Therefore every verdict has
`integrity="in_process"`, and such data sets are for evaluation only.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import replace

from coding_model_project.errors import DataError
from coding_model_project.grading.base import AnswerGrader
from coding_model_project.types import ErrorType, Harness, Problem, Stdin, Test, TestResult, Verdict

_MAINS = {
    "cpp": re.compile(r"\bint\s+main\s*(?=\()"),
    "go": re.compile(r"\bfunc\s+main\s*(?=\()"),
    "rust": re.compile(r"\bfn\s+main\s*(?=\()"),
}
"""Patterns of `main`, which a program cannot define twice; models add one to demonstrate the function."""


class HarnessGrader:
    """A grader that runs programs within their problem's harness.

    Args:
        execution: the grader that runs programs.
    """

    def __init__(self, execution: AnswerGrader) -> None:
        self._execution = execution

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a program; it passes if its harness runs to the end.

        Raises:
            DataError: the problem has no harness.
            SandboxError: the sandbox failed.
        """
        if problem.harness is None:
            raise DataError(f"problem {problem.id} has no harness")
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
            results=tuple(map(_without_word, verdict.results)),
            comparison="harness",
            integrity="in_process",
        )


def whole_program(harness: Harness, code: str, language: str) -> str:
    """Combine a harness and a candidate's program into one program."""
    if language in _MAINS:
        code = _MAINS[language].sub(
            lambda found: found[0].replace("main", "main_of_candidate"), code
        )
    if language == "go":
        code = with_used_imports(code)
    return f"{harness.before}{code}\n{harness.after}"


def _without_word(result: TestResult) -> TestResult:
    """Remove the random text from a result's detail, so that repeated judging gives the same detail."""
    if result.error is not ErrorType.wrong_answer:
        return result
    _, _, got = result.detail.partition(", got ")
    return replace(result, detail=f"the tests were not passed; the program printed {got}")


_PACKAGE = re.compile(r"\A(?:\s|//[^\n]*\n)*package\s+\w+;?")
_IMPORT = re.compile(r'^import\s*(?:\(([^)]*)\)|((?:[\w.]+\s+)?"[^"\n]*"));?', re.M)
_SPEC = re.compile(r'(?:([\w.]+)[ \t]+)?"([^"\n]+)"')
_USED = re.compile(r"\b(\w+)\.[A-Z]")
_COMPLETED = (
    "bytes", "crypto/md5", "fmt", "math", "math/rand", "regexp", "sort", "strconv", "strings", "time",
)  # fmt: skip
"""Imports that the publisher adds (`IMPORT_HELPER` of codegeex/benchmark/utils.py)."""


def with_used_imports(code: str) -> str:
    """Return the program without its package clause, with exactly the imports that it uses."""
    code = _PACKAGE.sub("", code)
    body = _IMPORT.sub("", code)
    used = set(_USED.findall(body))
    imported = {
        alias or _name(path): f'import {alias} "{path}"\n'
        for one in _IMPORT.finditer(code)
        for alias, path in _SPEC.findall(one[1] or one[2])
    }
    completed = {_name(path): f'import "{path}"\n' for path in _COMPLETED}
    kept = [
        line for name, line in (completed | imported).items() if name in used or name in ("_", ".")
    ]
    return "".join(kept) + body


def _name(path: str) -> str:
    """Return the name by which a program uses a package of the standard library."""
    return path.rpartition("/")[2]
