"""A grader that runs a program on a problem's tests and compares its answers on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from coding_model_project.errors import CheckerError, DataError
from coding_model_project.grading import checker
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.brief import clip, shown_value
from coding_model_project.grading.cache import PerProblem
from coding_model_project.grading.compare import (
    OUTPUT_RULES,
    VALUE_RULES,
    Tolerance,
    inputs_of,
    is_right,
)
from coding_model_project.grading.extract import is_entry_point
from coding_model_project.grading.prelude import with_prelude
from coding_model_project.grading.readings import SecondReading
from coding_model_project.grading.retries import CircuitBreaker, Limiter, Retries, with_limit
from coding_model_project.grading.wellformed import asserts_fault, never_rejects
from coding_model_project.sandbox.base import Sandbox, SharesCalls, identity_of
from coding_model_project.types import (
    Asserts,
    Call,
    Checker,
    ErrorType,
    Execution,
    Isolation,
    Problem,
    Program,
    Status,
    Stdin,
    Test,
    TestInput,
    TestResult,
    Verdict,
)

_ERRORS = {
    Status.syntax_error: ErrorType.syntax_error,
    Status.compile_error: ErrorType.compile_error,
    Status.raised: ErrorType.runtime_error,
    Status.signalled: ErrorType.runtime_error,
    Status.killed: ErrorType.runtime_error,
    Status.cpu_timeout: ErrorType.timeout,
    Status.wall_timeout: ErrorType.timeout,
    Status.memory_limit: ErrorType.memory_limit,
    Status.output_limit: ErrorType.output_limit,
}

SPENT = frozenset({ErrorType.timeout, ErrorType.memory_limit, ErrorType.output_limit})
"""Errors of a test that used up a limit."""

FAILED_S = 60.0
"""CPU seconds of all tests after which a failing test is the last. EvalPlus has up to 1,000 per problem,
each within its own limit."""

_UNBOUNDED = 1024
"""Maximum number of concurrent programs in a sandbox with its own queue."""

_DETAIL_BYTES = 900
"""Maximum size of each of the two values in a `TestResult.detail`, which holds at most 2 kB."""


class ExecutionGrader:
    """A grader by hidden tests (or, with `public`, by the public ones), in one sandbox call.

    Time-outs and memory kills are retried once (`retries`).

    Args:
        stop_early: stop at the first failing test. Use it for sparse rewards only, since it biases the
            pass fraction.
        stop_at_limit: stop at the first test that uses up its time, memory or output, since the others
            mostly would too, at their full limit, and at the first that fails once the program has used
            `FAILED_S`. The pass fraction counts the tests that did not run as failed.
        limiter: the limiter held while a program is in the sandbox; graders may share one. None leaves
            the number of concurrent programs to the sandbox.
        breaker: the circuit breaker that ends judging when the sandbox keeps failing; None disables it.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        stop_early: bool,
        public: bool = False,
        stop_at_limit: bool = False,
        limiter: Limiter | None = None,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self.sandbox = sandbox
        self._stop_early = stop_early
        self._stop_at_limit = stop_at_limit
        self._public = public
        self._breaker = breaker
        self._retries = Retries(sandbox, limiter or Limiter(_UNBOUNDED), breaker)
        self._inputs = PerProblem(self._inputs_of)

    @property
    def identity(self) -> str:
        """See `grading.base.CodeGrader`."""
        tests = "public" if self._public else "hidden"
        mode = "first" if self._stop_early else "limit" if self._stop_at_limit else "all"
        return f"{GRADER_VERSION}/{self.sandbox.identity}/{tests}/{mode}"

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """See `grading.base.CodeGrader`."""
        tests = checked_tests(problem, public=self._public)
        results: list[TestResult] = []
        judge_s = 0.0
        second = None if self._public else SecondReading.of(problem)
        if code is not None:
            program = program_of(problem, code)
            results, judge_s = await self._judge(program, problem, tests, second)
        publisher = second and second.decision(len(tests) - len(results))
        return Verdict(
            problem_id=problem.id,
            code=code,
            extraction=extraction,
            results=tuple(results),
            n_tests=len(tests),
            comparison="+".join(sorted({_rule(test, problem) for test in tests})),
            sandbox=identity_of(self.sandbox, problem.language),
            grader_version=GRADER_VERSION,
            isolation=isolation_in(self.sandbox, problem),
            public=self._public,
            base_tests=None if self._public else problem.base_tests,
            judge_s=judge_s,
            publisher_passed=publisher[0] if publisher else None,
            publisher_differs=publisher[1] if publisher else "",
        )

    def answered_from_memory(self) -> None:
        """Record a success in the breaker for a cache hit.

        Failures are never cached. Once most programs are, the few that always fail would dominate the
        requests to the sandbox.
        """
        if self._breaker is not None:
            self._breaker.record()

    async def _judge(
        self,
        program: Program,
        problem: Problem,
        tests: Sequence[Test],
        second: SecondReading | None,
    ) -> tuple[list[TestResult], float]:
        """Return the results, and the seconds that they took without waiting."""
        known: dict[int, tuple[Execution, TestResult]] = {}
        used_s = 0.0

        def result(index: int, execution: Execution) -> TestResult:
            nonlocal used_s
            if index not in known or known[index][0] is not execution:  # the first run, or a retry
                test = tests[index]
                used_s += execution.cpu_s
                known[index] = execution, judge_execution(test, execution, problem)
                if second is not None:
                    second.read(index, test, execution, known[index][1])
            return known[index][1]

        def ends(index: int, execution: Execution) -> bool:
            error = result(index, execution).error
            failed = error is not None if second is None else second.both_failed
            return error in SPENT or (failed and (self._stop_early or used_s > FAILED_S))

        stop = ends if self._stop_early or self._stop_at_limit else None
        inputs = self._inputs(problem)
        executions, seconds = await self._retries.run(program, inputs, problem.limits, stop)
        results = [result(index, execution) for index, execution in enumerate(executions)]
        if problem.checker is not None:
            seconds += await self._check(problem, problem.checker, tests, executions, results)
        return results, seconds

    def _inputs_of(self, problem: Problem) -> list[TestInput]:
        tests = checked_tests(problem, public=self._public)
        return inputs_of(tests, isolation_in(self.sandbox, problem))

    async def _check(
        self,
        problem: Problem,
        by: Checker,
        tests: Sequence[Test],
        executions: Sequence[Execution],
        results: list[TestResult],
    ) -> float:
        """Add the checker's rulings to `results` without an error, and return the seconds it took."""
        finished = [index for index, result in enumerate(results) if result.error is None]
        outputs = [
            checker.Output(
                input=given.text, output=executions[i].stdout, answer=str(tests[i].expected)
            )
            for i in finished
            if isinstance(given := tests[i].input, Stdin)
        ]
        seconds = 0.0

        async def run(*what: Any) -> list[Execution]:
            nonlocal seconds
            found, spent = await self._retries.run(*what)
            seconds += spent
            return found

        try:
            rulings = await checker.rule(run, by, outputs, stop_early=self._stop_early)
        except CheckerError as error:
            raise CheckerError(f"problem {problem.id}: {error}") from error
        for index, ruling in zip(finished, rulings, strict=False):
            if not ruling.accepted:
                detail = clip(ruling.comment, _DETAIL_BYTES)
                wrong = ErrorType.wrong_answer
                results[index] = replace(results[index], error=wrong, detail=detail)
        if len(rulings) < len(finished):  # stopped at a rejection: later outputs were not judged
            del results[finished[len(rulings) - 1] + 1 :]
        return seconds


def program_of(problem: Problem, code: str) -> Program:
    """Return the program that runs for a problem: the code after the problem's prelude."""
    return Program(source=with_prelude(problem.prelude, code), language=problem.language)


def isolation_in(sandbox: Sandbox, problem: Problem) -> Isolation:
    """Return the isolation of a problem's tests in a sandbox, which may be unable to share calls."""
    calls = any(isinstance(test.input, Call) for test in problem.tests)
    return (
        Isolation.per_test if calls and not isinstance(sandbox, SharesCalls) else problem.isolation
    )


def judge_execution(test: Test, execution: Execution, problem: Problem) -> TestResult:
    """Return one test's result. An output for a checker has no error yet."""
    error = _ERRORS.get(execution.status)
    if error is not None:
        said = clip(execution.stderr_tail.strip(), _DETAIL_BYTES)
        detail = with_limit(said, execution.status, problem.limits)
        return TestResult(error=error, cpu_s=execution.cpu_s, detail=detail)
    if problem.comparison == checker.CHECKER or is_right(test, execution, problem):
        return TestResult(error=None, cpu_s=execution.cpu_s)
    got = execution.stdout if isinstance(test.input, Stdin) else execution.value
    detail = f"expected {_short(test.expected)}, got {_short(got)}"
    if isinstance(test.input, Asserts):
        detail = clip(str(got), _DETAIL_BYTES)
    return TestResult(error=ErrorType.wrong_answer, cpu_s=execution.cpu_s, detail=detail)


def _short(value: object) -> str:
    return shown_value(value, _DETAIL_BYTES)


def _rule(test: Test, problem: Problem) -> str:
    """Return the name of a test's comparison rule for the verdict."""
    match test.input:
        case Stdin() if problem.comparison != "tokens":
            return problem.comparison
        case Stdin():
            return Tolerance.of(problem).named("tokens")
        case Call():
            rule = problem.comparison if problem.comparison in VALUE_RULES else "value"
            return Tolerance.of(problem).named(rule)
        case Asserts():
            return "asserts"


def checked_tests(problem: Problem, *, public: bool) -> tuple[Test, ...]:
    """Return the tests to grade by.

    Raises:
        DataError: there are no tests, or they do not fit the problem's comparison.
    """
    tests = problem.public_tests if public else problem.hidden_tests
    if not tests:
        raise DataError(f"problem {problem.id} has no {'public' if public else 'hidden'} tests")
    if fault := _fault_of_comparison(problem):
        raise DataError(f"problem {problem.id}: {fault}")
    for number, test in enumerate(tests):
        if fault := _fault_of_test(problem, test):
            raise DataError(f"problem {problem.id}, test {number}: {fault}")
    return tests


def _fault_of_comparison(problem: Problem) -> str | None:
    given = f"comparison={problem.comparison!r}"
    if problem.comparison not in (*OUTPUT_RULES, checker.CHECKER, *VALUE_RULES):
        near = get_close_matches(problem.comparison, OUTPUT_RULES, n=1, cutoff=0.7)
        return (
            f"{given}: {f'did you mean {near[0]}? ' if near else ''}expected {', '.join(OUTPUT_RULES)}, "
            f"{checker.CHECKER} with a checker, or a rule for values of calls: {', '.join(VALUE_RULES)}"
        )
    if (problem.comparison == checker.CHECKER) is (problem.checker is None):
        has = "no checker" if problem.checker is None else "a checker"
        return f"{given} with {has}: expected a checker with comparison='checker', or neither"
    if problem.checker is not None and never_rejects(problem.checker):
        return (
            "the checker never exits with a code, so it accepts every output: sys.exit(1) rejects"
        )
    return None


def _fault_of_test(problem: Problem, test: Test) -> str | None:
    given, comparison = test.input, problem.comparison
    if comparison in VALUE_RULES and not isinstance(given, Call):
        expected = "expected a test that calls a function"
        return f"comparison={comparison!r} compares values of calls: {expected}"
    if problem.checker is not None and not isinstance(given, Stdin):
        return "a checker judges outputs: expected a test with standard input"
    if isinstance(given, Asserts) and not is_entry_point(given.entry_point or "f"):
        expected = "expected a name, or an expression such as Solution().add"
        return f"entry_point={given.entry_point!r}: {expected}"
    if isinstance(given, Asserts):
        return asserts_fault(given.source, given.entry_point)
    if isinstance(given, Stdin) and not isinstance(test.expected, str):
        return f"expected={test.expected!r}: a test with standard input expects text, such as '3'"
    return None
