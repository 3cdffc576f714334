"""Messages about a program that failed, so that the model can try again.

An episode is an answer and up to R repairs. After each answer the *public* tests judge it:

    it passes them      the episode ends and this answer is final. Whether the hidden tests accept it
                        is not told: to go on would itself tell the model that they do not.
    it fails one        that test is shown, with what came of it, and the model answers again.

Nothing of a hidden test is ever shown: `observation` takes verdicts of public tests and refuses others.
"""

from __future__ import annotations

from coding_model_project.grading.brief import clip, shown_input, shown_value
from coding_model_project.grading.prompts import PromptStyle, request
from coding_model_project.types import Asserts, ErrorType, Problem, Test, TestResult, Verdict

MIN_BYTES = 60
"""Less cannot say what went wrong."""

_WITHOUT_A_TEST = (ErrorType.no_code, ErrorType.syntax_error, ErrorType.compile_error)
"""Errors that no test is needed to see."""


def can_repair(problem: Problem) -> bool:
    """Return true if a model may see any test of its program."""
    return bool(problem.public_tests)


def observation(
    problem: Problem, verdict: Verdict, *, style: PromptStyle, max_bytes: int
) -> dict[str, str] | None:
    """The message after a failed attempt; None if the attempt passes the public tests, and is final.

    It holds the type of the error, the input of the first public test that failed, what should have
    come of it, and what did: the output, or the last line of the traceback.

    Args:
        verdict: of the problem's public tests.
        max_bytes: of what differs from problem to problem; at least `MIN_BYTES`.

    Raises:
        ValueError: the verdict is of hidden tests.
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
    said = clip(_outcome(test, result, max_bytes), max_bytes - len(given.encode()))
    if style is PromptStyle.bare:
        return {"role": "user", "content": "\n".join(filter(None, (error, given, said)))}
    shown = f"\n\nInput:\n```text\n{given}\n```" if test is not None else ""
    content = f"The program fails: {error}.{shown}\n\n{said}\n\nCorrect it."
    return {"role": "user", "content": content + request(problem)}


def _outcome(test: Test | None, result: TestResult | None, max_bytes: int) -> str:
    """Return the expected result of the test and the actual one."""
    if result is None:
        return "The answer holds no program."
    if result.error is ErrorType.wrong_answer and result.detail:
        return result.detail  # says both
    lines = result.detail.strip().splitlines()
    got = lines[-1].strip() if lines else str(result.error)
    if test is None or isinstance(test.input, Asserts):
        return got
    return f"expected {shown_value(test.expected, max_bytes // 4)}, got {got}"
