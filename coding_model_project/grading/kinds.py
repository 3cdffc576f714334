"""The kinds of answers: how a row states one, a prompt asks for one, and a grader judges one.

To add a kind, add a value to `types.GradedBy` with its field of `Problem`, and its record here. Rows,
prompts, rewards, checks and the judge read these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from coding_model_project.codec import to_json
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import DataError
from coding_model_project.grading.base import (
    DEFAULT_ENVIRONMENT,
    AnswerGrader,
    TaskEnvironment,
    TaskGraders,
)
from coding_model_project.grading.harness import HarnessGrader
from coding_model_project.grading.maths.final_answer import AnswerRule
from coding_model_project.grading.maths.gsm8k_answer import GSM8K
from coding_model_project.grading.predictions import PredictionGrader, PredictionRule
from coding_model_project.row_readers import (
    Reader,
    fail,
    is_text,
    list_of,
    object_with,
    one_of,
    shown,
    text,
    text_or_null,
    value_of,
    value_that,
)
from coding_model_project.sandbox.base import Queues
from coding_model_project.types import (
    Asserts,
    Call,
    GradedBy,
    Harness,
    Instruction,
    Predicted,
    Prediction,
    Problem,
    Stdin,
    Test,
)

if TYPE_CHECKING:
    from coding_model_project.grading.execution import ExecutionGrader
    from coding_model_project.grading.retries import CircuitBreaker, Limiter


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a judge that its graders share."""

    execution: ExecutionGrader
    limiter: Limiter
    breaker: CircuitBreaker | None = None
    environment: TaskEnvironment = DEFAULT_ENVIRONMENT
    tasks: TaskGraders | None = None
    """Without it, problems with a Harbor task are ungradable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of answer."""

    read: Reader
    """Converts the field of a row."""
    example: str
    """The field's value in a row, for messages."""
    make: Callable[[Parts], AnswerGrader]
    """Makes the grader for the first problem that needs it. A context manager is entered, too."""
    write: Callable[[Any], Any] = lambda value: value
    """Converts the field's value for a row; dataclasses are written as objects."""
    request: Callable[[Problem], str] = lambda problem: ""
    """Returns the end of a prompt, which asks for the form of the answer."""
    form: StrEnum | None = None
    """The rule that extracts an answer of the requested form, if that is not a block of code."""
    check: Callable[[Problem], None] = lambda problem: None
    """Raises `DataError` or `NotInstalledError` for a problem that cannot be judged here; fast."""
    needs_gold: bool = True
    """True if only a gold solution proves a problem sound."""


# ── tests ─────────────────────────────────────────────────────────────────────────────────────────


_FLAG = value_that("true or false", lambda value: isinstance(value, bool))
_TESTS = {
    "stdin": object_with(
        lambda stdin, expected, public=False: Test(Stdin(stdin), expected=expected, public=public),
        stdin=text,
        expected=value_that("the expected output as text", is_text),
        public=_FLAG,
    ),
    "call": object_with(
        lambda call, args, expected, public=False: Test(
            Call(call, args), expected=expected, public=public
        ),
        call=text,
        args=list_of("arguments", value_of),
        expected=value_of,
        public=_FLAG,
    ),
    "asserts": object_with(
        lambda asserts, entry_point=None, expected=None, public=False: Test(
            Asserts(asserts, entry_point), expected=expected, public=public
        ),
        asserts=text,
        entry_point=text_or_null,
        expected=value_of,
        public=_FLAG,
    ),
}
"""The forms of a test, by the field that only they have."""


def _test(value: Any, path: str) -> Test:
    names = value if isinstance(value, Mapping) else ()
    form = next((form for form in _TESTS if form in names), None)
    if form is None:
        fail(path, f"expected an object with one of {', '.join(_TESTS)}, got {shown(value)}")
    return _TESTS[form](value, path)


def _check_tests(problem: Problem) -> None:
    from coding_model_project.grading.execution import checked_tests

    checked_tests(problem, public=False)


def _block(problem: Problem) -> str:
    return f"\n\nAnswer with one ```{problem.language} code block that holds the whole program."


# ── graders ───────────────────────────────────────────────────────────────────────────────────────


def _harbor(parts: Parts) -> AnswerGrader:
    if parts.tasks is None:
        raise DataError("this judge has no grader of Harbor tasks: pass tasks=harbor.task_grader")
    from coding_model_project.grading.retries import Limiter

    # Tasks run on this machine, also where programs have a cluster with a queue of its own.
    here = isinstance(parts.execution.sandbox, Queues)
    limiter = Limiter(usable_cores()) if here else parts.limiter
    return parts.tasks(limiter=limiter, breaker=parts.breaker, environment=parts.environment)


def _math(parts: Parts) -> AnswerGrader:
    from coding_model_project.grading.maths.grader import MathGrader

    return MathGrader(breaker=parts.breaker)


def _check_math(problem: Problem) -> None:
    from coding_model_project.grading.maths.grader import check_math_verify

    check_math_verify()


def _boxed(problem: Problem) -> str:
    if problem.comparison == GSM8K:
        return ""  # the examples show the form
    return "\n\nReason step by step, and put the final answer in \\boxed{}."


def _instructions(parts: Parts) -> AnswerGrader:
    from coding_model_project.grading.instructions import InstructionsGrader

    return InstructionsGrader()


def _check_instructions(problem: Problem) -> None:
    from coding_model_project.grading.instructions import check_instructions

    check_instructions([problem])


KINDS = {
    GradedBy.tests: Kind(
        read=list_of("tests", _test),
        example='[{"call": "f", "args": [1, 2], "expected": 3}, {"stdin": "1 2", "expected": "3"}, '
        '{"asserts": "assert f(1) == 2", "entry_point": "f"}]',
        make=lambda parts: parts.execution,
        request=_block,
        check=_check_tests,
    ),
    GradedBy.math: Kind(
        read=value_that("text that is not blank", lambda value: is_text(value) and value.strip()),
        example='"42"',
        make=_math,
        request=_boxed,
        form=AnswerRule.boxed,
        check=_check_math,
    ),
    GradedBy.instructions: Kind(
        read=list_of(
            "instructions",
            object_with(
                Instruction,
                kind=text,
                arguments=value_that("an object", lambda value: isinstance(value, Mapping)),
            ),
        ),
        example='[{"kind": "punctuation:no_comma", "arguments": {}}]',
        make=_instructions,
        check=_check_instructions,
        needs_gold=False,
    ),
    GradedBy.prediction: Kind(
        read=object_with(Prediction, of=one_of(Predicted), program=text, output=value_of),
        write=lambda value: replace(value, output=to_json(value.output)),
        example='{"of": "output", "program": "def f(x): return [x]", "output": [1]}',
        make=lambda parts: PredictionGrader(parts.execution),
        form=PredictionRule.tagged,
    ),
    GradedBy.harness: Kind(
        read=object_with(Harness, before=text, after=text),
        example='{"after": "assert f(1) == 2\\nprint(\\"\\\\n\\" + input())"}',
        make=lambda parts: HarnessGrader(parts.execution),
        request=_block,
    ),
    GradedBy.harbor: Kind(
        read=value_that("a folder", is_text), example='"tasks/17"', make=_harbor, request=_block
    ),
}
"""The record of each kind."""
