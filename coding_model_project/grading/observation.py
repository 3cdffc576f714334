"""Messages about a failed program, so that the model can repair it.

An episode is an answer and up to R repairs. The *public* tests judge each answer:

    it passes them      the episode ends, and this answer is final, even if the hidden tests reject it:
                        continuing would tell the model that they do.
    it fails one        the message shows that test with its outcome, and the model answers again.

No part of a hidden test is ever shown: `observation` accepts only verdicts on public tests.
"""

from __future__ import annotations

from coding_model_project.grading.brief import clip, shown_input, shown_value
from coding_model_project.grading.prompts import PromptStyle, request
from coding_model_project.grading.retries import without_limit
from coding_model_project.types import Asserts, ErrorType, Problem, Test, TestResult, Verdict

MIN_BYTES = 60
"""Minimum size of an observation that can describe an error."""

_WITHOUT_A_TEST = (ErrorType.no_code, ErrorType.syntax_error, ErrorType.compile_error)
"""Errors that occur before any test."""


def can_repair(problem: Problem) -> bool:
    """Return whether the problem has public tests to show to the model."""
    return bool(problem.public_tests)


def observation(
    problem: Problem, verdict: Verdict, *, style: PromptStyle, max_bytes: int
) -> dict[str, str] | None:
    """Return the message after a failed attempt; None if the attempt passes the public tests.

    It holds the type of the error, the input of the first failing public test, the expected result, and
    the actual one: the output, or the last line of the traceback.

    Args:
        verdict: the verdict on the problem's public tests.
        max_bytes: the maximum size of the part that depends on the problem; at least `MIN_BYTES`.

    Raises:
        ValueError: the verdict is on hidden tests.
    """
    if not verdict.public:
        raise ValueError(f"{problem.id}: a verdict of hidden tests must not be shown")
    if verdict.passed:
        return None
    error = verdict.error
    assert error is not None
    failed = next((i for i, result in enumerate(verdict.results) if result.error is not None), None)
    test = None if failed is None or error in _WITHOUT_A_TEST else problem.public_tests[failed]
    given = "" if test is None else clip(shown_input(test.input).rstrip("\n"), max_bytes // 2)
    result = None if failed is None else verdict.results[failed]
    outcome = clip(_outcome(test, result, max_bytes), max_bytes - len(given.encode()))
    if style is PromptStyle.bare:
        return {"role": "user", "content": "\n".join(filter(None, (error, given, outcome)))}
    shown = f"\n\nInput:\n```text\n{given}\n```" if test is not None else ""
    content = f"The program fails: {error}.{shown}\n\n{outcome}\n\nCorrect it."
    return {"role": "user", "content": content + request(problem)}


def _outcome(test: Test | None, result: TestResult | None, max_bytes: int) -> str:
    """Return the expected result of the test and the actual one."""
    if result is None:
        return "The answer holds no program."
    if result.error is ErrorType.wrong_answer and result.detail:
        return result.detail  # holds both
    detail = without_limit(result.detail) if result.error is ErrorType.timeout else result.detail
    lines = detail.strip().splitlines()
    got = lines[-1].strip() if lines else str(result.error)
    if test is None or isinstance(test.input, Asserts):
        return got
    return f"expected {shown_value(test.expected, max_bytes // 4)}, got {got}"
