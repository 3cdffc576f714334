"""Judges a completion by running it on a problem's tests and comparing its answers on the host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from coding_model_project.errors import DataError, SandboxError
from coding_model_project.extract import extract
from coding_model_project.graders.base import GRADER_VERSION
from coding_model_project.graders.breaker import CircuitBreaker
from coding_model_project.graders.compare import output_rule, same_output, same_value
from coding_model_project.sandbox.base import Sandbox, StopWhen
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
"""Kills that a loaded machine can cause, unlike CPU time: run again once before blame."""

_RERUN_BUDGET = 0.1
"""Share of the judge's time that re-runs may take: a policy can cause such kills at will."""

_DETAIL_BYTES = 900
"""Of each of the two values in a `TestResult.detail`, which holds at most 2 kB."""


class ExecutionGrader:
    """Grades by hidden tests (or, with `public`, by the public ones), in one sandbox call.

    A time-out by wall clock and a memory kill are run again once before the program is blamed, one
    at a time and for at most 10% of the time judged so far. Beyond that they are blamed at once.

    Args:
        bare: completions are programs without a fence (`prompts.PromptStyle.bare`).
        stop_early: stop at the first failing test. For a sparse reward only: the pass fraction of
            the tests that ran before a stop would be biased.
        slots: held while a program is in the sandbox; graders may share them. None leaves it to the
            sandbox how many run at once.
        breaker: ends judging when the sandbox keeps failing; None never does.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        bare: bool,
        stop_early: bool,
        public: bool = False,
        slots: asyncio.Semaphore | None = None,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._bare = bare
        self._stop_early = stop_early
        self._public = public
        self._slots = slots
        self._breaker = breaker
        self._rerunning = asyncio.Lock()
        self._judged_s = 0.0
        self._rerun_s = 0.0

    @property
    def identity(self) -> str:
        """All but code and problem that a verdict depends on."""
        tests = "public" if self._public else "hidden"
        mode = "first" if self._stop_early else "all"
        return f"{GRADER_VERSION}/{self._sandbox.identity}/{tests}/{mode}"

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """See `graders.base.Grader`."""
        found = extract(completion, language=problem.language, bare=self._bare)
        return await self.grade_code(problem, found.code, extraction=str(found.rule))

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a program as it is: a gold solution, or what `extract` found (None: nothing).

        Raises:
            UngradableError: as `grade`.
        """
        tests = _checked_tests(problem, public=self._public)
        results: list[TestResult] = []
        judge_s = 0.0
        if code is not None:
            async with AsyncExitStack() as stack:
                if self._slots is not None:
                    await stack.enter_async_context(self._slots)
                started = time.monotonic()
                results = await self._judge(
                    Program(source=code, language=problem.language), problem, tests
                )
                judge_s = time.monotonic() - started
        return Verdict(
            problem_id=problem.id,
            code=code,
            extraction=extraction,
            results=tuple(results),
            n_tests=len(tests),
            comparison="+".join(sorted({_rule(test, problem) for test in tests})),
            sandbox=self._sandbox.identity,
            grader_version=GRADER_VERSION,
            judge_s=judge_s,
        )

    async def _judge(
        self, program: Program, problem: Problem, tests: Sequence[Test]
    ) -> list[TestResult]:
        def failed(index: int, execution: Execution) -> bool:
            return judge_execution(tests[index], execution, problem.comparison).error is not None

        stop_when = failed if self._stop_early else None
        started = time.monotonic()
        executions = await self._run(program, problem, tests, stop_when)
        self._judged_s += time.monotonic() - started
        first = next((i for i, e in enumerate(executions) if e.status in _MAYBE_OURS), None)
        if first is not None:
            again = await self._run_again(program, problem, tests, first)
            executions = [*executions[:first], *again, *executions[first + len(again) :]]
        return [
            judge_execution(test, execution, problem.comparison)
            for test, execution in zip(tests, executions, strict=False)
        ]

    async def _run_again(
        self, program: Program, problem: Problem, tests: Sequence[Test], first: int
    ) -> list[Execution]:
        """From the first suspect kill on, until one comes again; nothing once the budget is spent.

        Later tests run again too, since what loaded the machine may have hit them as well.
        """

        def stop(index: int, execution: Execution) -> bool:
            test = tests[first + index]
            return execution.status in _MAYBE_OURS or (
                self._stop_early
                and judge_execution(test, execution, problem.comparison).error is not None
            )

        async with self._rerunning:
            if self._rerun_s > _RERUN_BUDGET * self._judged_s:
                return []
            started = time.monotonic()
            try:
                return await self._run(program, problem, tests[first:], stop)
            finally:
                self._rerun_s += time.monotonic() - started

    async def _run(
        self,
        program: Program,
        problem: Problem,
        tests: Sequence[Test],
        stop_when: StopWhen | None,
    ) -> list[Execution]:
        if self._breaker is not None:
            self._breaker.check()
        inputs = [test.input for test in tests]
        try:
            executions = await self._sandbox.run(
                program, inputs, problem.limits, stop_when=stop_when
            )
            stopped = stop_when is not None and executions != []
            if len(executions) < len(tests) and not stopped:
                raise SandboxError(
                    f"{self._sandbox.identity} gave {len(executions)} answers for {len(tests)} "
                    f"inputs of {problem.id}"
                )
        except SandboxError:
            if self._breaker is not None:
                self._breaker.record(worked=False)
            raise
        if self._breaker is not None:
            self._breaker.record(worked=True)
        return executions


def judge_execution(test: Test, execution: Execution, comparison: str) -> TestResult:
    """One test's result from its execution; the only place that looks at an expected output."""
    error = _ERRORS.get(execution.status)
    if error is not None:
        detail = clip(execution.stderr_tail.strip(), _DETAIL_BYTES)
        return TestResult(error=error, cpu_s=execution.cpu_s, detail=detail)
    match test.input:
        case Stdin():
            right = same_output(str(test.expected), execution.stdout, comparison)
            got: object = execution.stdout
        case Call():
            right = same_value(test.expected, execution.value)
            got = execution.value
        case Asserts():  # only the tests' own word, in full, is a pass: else the line that failed
            right, got = execution.value is True, execution.value
    if right:
        return TestResult(error=None, cpu_s=execution.cpu_s)
    detail = f"expected {_short(test.expected)}, got {_short(got)}"
    if isinstance(test.input, Asserts):
        detail = clip(str(got), _DETAIL_BYTES)
    return TestResult(error=ErrorType.wrong_answer, cpu_s=execution.cpu_s, detail=detail)


def clip(text: str, max_bytes: int) -> str:
    """A text's start and end, in at most `max_bytes` of UTF-8; a traceback's end says most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    tail = max_bytes * 2 // 3
    head = max_bytes - tail - 5  # " … " takes five bytes
    return data[:head].decode("utf-8", "ignore") + " … " + data[-tail:].decode("utf-8", "ignore")


def _short(value: object) -> str:
    try:
        return clip(repr(value), _DETAIL_BYTES)
    except (ValueError, RecursionError):  # an int of too many digits to print, too deep a nesting
        return f"a {type(value).__name__} too large to show"


def _rule(test: Test, problem: Problem) -> str:
    """What decides a test, as the verdict records it."""
    match test.input:
        case Stdin():
            return problem.comparison
        case Call():
            return "value"
        case Asserts():
            return "asserts"


def _checked_tests(problem: Problem, *, public: bool) -> tuple[Test, ...]:
    """The tests to grade by.

    Raises:
        DataError: there are none, or they cannot be compared.
    """
    tests = problem.public_tests if public else problem.hidden_tests
    if not tests:
        raise DataError(f"problem {problem.id} has no {'public' if public else 'hidden'} tests")
    output_rule(problem.comparison)
    for number, test in enumerate(tests):
        if isinstance(test.input, Stdin) and not isinstance(test.expected, str):
            raise DataError(f"problem {problem.id}, test {number}: the expected output is no text")
    return tests
