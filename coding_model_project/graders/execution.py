"""Judges a completion by running it on a problem's tests and comparing its answers on the host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from coding_model_project.errors import DataError
from coding_model_project.extract import extract
from coding_model_project.graders.base import GRADER_VERSION
from coding_model_project.graders.compare import same_output, same_value
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import (
    Asserts,
    Call,
    ErrorType,
    Execution,
    Problem,
    Program,
    Status,
    Stdin,
    Test,
    TestResult,
    Verdict,
)

_ERRORS = {
    Status.syntax_error: ErrorType.syntax_error,
    Status.compile_error: ErrorType.compile_error,
    Status.raised: ErrorType.runtime_error,
    Status.signalled: ErrorType.runtime_error,
    Status.cpu_timeout: ErrorType.timeout,
    Status.wall_timeout: ErrorType.timeout,
    Status.memory_limit: ErrorType.memory_limit,
    Status.output_limit: ErrorType.output_limit,
}

_MAYBE_OURS = frozenset({Status.wall_timeout, Status.memory_limit})
"""Kills that a loaded machine can cause, unlike CPU time: re-run once, alone, before blame."""

_RERUN_BUDGET = 0.1
"""Share of the judge's time that re-runs may take: a policy can cause such kills at will."""


class ExecutionGrader:
    """Grades by hidden tests (or, with `public`, by the public ones), in one sandbox call.

    Args:
        bare: completions are programs without a fence (`prompts.PromptStyle.bare`).
        stop_early: stop at the first failing test. For a sparse reward only: the pass fraction of
            the tests that ran before a stop would be biased.
    """

    def __init__(
        self, sandbox: Sandbox, *, bare: bool, stop_early: bool, public: bool = False
    ) -> None:
        self._sandbox = sandbox
        self._bare = bare
        self._stop_early = stop_early
        self._public = public
        self._alone = asyncio.Lock()
        self._judged_s = 0.0
        self._rerun_s = 0.0

    @property
    def identity(self) -> str:
        """All but code and problem that a verdict depends on."""
        mode = f"{'public' if self._public else 'hidden'}/{'first' if self._stop_early else 'all'}"
        return f"{GRADER_VERSION}/{self._sandbox.identity}/{mode}/{'bare' if self._bare else 'fenced'}"

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """See `graders.base.Grader`."""
        tests = problem.public_tests if self._public else problem.hidden_tests
        if not tests:
            kind = "public" if self._public else "hidden"
            raise DataError(f"problem {problem.id} has no {kind} tests")
        found = extract(completion, language=problem.language, bare=self._bare)
        started = time.monotonic()
        results: list[TestResult] = []
        if found.code is not None:
            program = Program(source=found.code, language=problem.language)
            results = await self._judge(program, problem, tests)
        judge_s = time.monotonic() - started
        self._judged_s += judge_s
        return Verdict(
            problem_id=problem.id,
            code=found.code,
            extraction=str(found.rule),
            results=tuple(results),
            n_tests=len(tests),
            comparison=problem.comparison if isinstance(tests[0].input, Stdin) else "value",
            sandbox=self._sandbox.identity,
            grader_version=GRADER_VERSION,
            judge_s=judge_s,
        )

    async def _judge(
        self, program: Program, problem: Problem, tests: Sequence[Test]
    ) -> list[TestResult]:
        def failed(index: int, execution: Execution) -> bool:
            return judge_execution(tests[index], execution, problem.comparison).error is not None

        executions = await self._sandbox.run(
            program,
            [test.input for test in tests],
            problem.limits,
            stop_when=failed if self._stop_early else None,
        )
        suspect = [i for i, e in enumerate(executions) if e.status in _MAYBE_OURS]
        if suspect and self._rerun_s <= _RERUN_BUDGET * self._judged_s:
            async with self._alone:
                started = time.monotonic()
                index = suspect[0]
                again = await self._sandbox.run(program, [tests[index].input], problem.limits)
                self._rerun_s += time.monotonic() - started
            if again[0].status not in _MAYBE_OURS:  # it was the machine's load: judge anew
                executions = await self._sandbox.run(
                    program,
                    [test.input for test in tests],
                    problem.limits,
                    stop_when=failed if self._stop_early else None,
                )
        return [
            judge_execution(test, execution, problem.comparison)
            for test, execution in zip(tests, executions, strict=False)
        ]


def judge_execution(test: Test, execution: Execution, comparison: str) -> TestResult:
    """One test's result from its execution; the only place where an expected output is looked at."""
    error = _ERRORS.get(execution.status)
    if error is not None:
        detail = execution.stderr_tail.strip()[-500:]
        return TestResult(error=error, cpu_s=execution.cpu_s, detail=detail)
    match test.input:
        case Stdin():
            right = same_output(str(test.expected), execution.stdout, comparison)
            got: object = execution.stdout
        case Call():
            right = same_value(test.expected, execution.value)
            got = execution.value
        case Asserts():
            right, got = True, None
    if right:
        return TestResult(error=None, cpu_s=execution.cpu_s)
    detail = f"expected {_short(test.expected)}, got {_short(got)}"
    return TestResult(error=ErrorType.wrong_answer, cpu_s=execution.cpu_s, detail=detail)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:240]} … {text[-240:]}"
