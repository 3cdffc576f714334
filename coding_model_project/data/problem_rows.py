"""Our schema: the fields of a problem's row, and the conversion of a decoded row into a problem.

Each message names the field, the expected and the actual value, and shows the right form. `data.problems`
describes the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from typing import Any

from coding_model_project.data.governance import why_not_shared
from coding_model_project.data.problem_values import value_of
from coding_model_project.data.row_readers import (
    Malformed,
    Reader,
    fail,
    list_of,
    object_with,
    one_of,
    shown,
    text,
    text_or_null,
    value_that,
)
from coding_model_project.grading.maths.gsm8k_answer import LM_EVAL
from coding_model_project.grading.readings import RULES
from coding_model_project.grading.wellformed import LARGEST, is_positive, is_tolerance
from coding_model_project.types import (
    Asserts,
    Call,
    Checker,
    GradedBy,
    Harness,
    Instruction,
    Isolation,
    Limits,
    Predicted,
    Prediction,
    Problem,
    Protocol,
    Stdin,
    Test,
    Turn,
)

JUDGED_BY = {
    GradedBy.tests: "tests",
    GradedBy.harbor: "task",
    GradedBy.math: "answer",
    GradedBy.instructions: "instructions",
    GradedBy.prediction: "prediction",
    GradedBy.harness: "harness",
}
"""The field for each grader."""

_RUN = (GradedBy.tests, GradedBy.harbor, GradedBy.harness)
"""Graders that run a program."""

STATEMENTS = (
    "question", "problem", "prompt", "messages", "description", "question_content",
    "problem_description", "problem_statement", "instruction", "statement", "query", "text", "content",
    "task_description", "task", "input", "responses_create_params",
)  # fmt: skip
TESTS = (
    "tests", "test_cases", "input_output", "test_list", "test", "test_code", "testcases", "unit_tests",
    "cases", "asserts",
)  # fmt: skip
PROGRAMS = (
    "solutions", "solution", "canonical_solution", "reference_solution", "reference", "completion",
    "code", "response",
)  # fmt: skip
_NAMES = {
    "id": ("task_id", "problem_id", "question_id", "uid", "name"),
    "statement": STATEMENTS,
    "question": STATEMENTS,
    "tests": TESTS,
    "gold": PROGRAMS,
}
"""Names of our fields in public files, the likeliest first, to suggest the right `--map`."""

# ── the schema ────────────────────────────────────────────────────────────────────────────────────


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


_FLAG = value_that("true or false", lambda value: isinstance(value, bool))
_TOLERANCE = value_that("a number of at least 0", is_tolerance, float)
_SECONDS = value_that("a number above 0", is_positive)
_SIZE = value_that(
    "a whole number above 0", lambda value: is_positive(value) and value == int(value), int
)

_TESTS = {
    "stdin": object_with(
        lambda stdin, expected, public=False: Test(Stdin(stdin), expected=expected, public=public),
        stdin=text,
        expected=value_that("the expected output as text", _is_text),
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


_PUBLISHERS = (*RULES, LM_EVAL)

_SCHEMA: dict[str, tuple[Reader, str]] = {
    "id": (text, '"mine/1"'),
    "split": (text, '"train"'),
    "statement": (text, '"Define add(a, b)."'),
    "tests": (
        list_of("tests", _test),
        '[{"call": "f", "args": [1, 2], "expected": 3}, {"stdin": "1 2", "expected": "3"}, '
        '{"asserts": "assert f(1) == 2", "entry_point": "f"}]',
    ),
    "limits": (
        object_with(Limits, cpu_s=_SECONDS, wall_s=_SECONDS, memory_mb=_SIZE, output_kb=_SIZE),
        '{"cpu_s": 5, "wall_s": 15, "memory_mb": 512, "output_kb": 1024}',
    ),
    "comparison": (text, '"tokens"'),
    "atol": (_TOLERANCE, "1e-6"),
    "rtol": (_TOLERANCE, "1e-6"),
    "checker": (
        object_with(Checker, source=text, language=text, protocol=one_of(Protocol)),
        '{"source": "import sys…", "language": "python", "protocol": "testlib"}',
    ),
    "isolation": (one_of(Isolation), '"shared"'),
    "entry_point": (text_or_null, '"add"'),
    "language": (text, '"python"'),
    "difficulty": (value_that("a whole number or null", _is_whole), "2"),
    "date": (
        value_that("a day or null", _is_text, lambda day: date.fromisoformat(day).isoformat()),
        '"2024-08-01"',
    ),
    "tags": (list_of("texts", text), '["lists"]'),
    "gold": (list_of("programs", text), '["def add(a, b): ..."]'),
    "bad": (list_of("programs", text), '["def add(a, b): ..."]'),
    "task": (value_that("a folder", _is_text), '"tasks/17"'),
    "answer": (
        value_that("text that is not blank", lambda value: _is_text(value) and value.strip()),
        '"42"',
    ),
    "instructions": (
        list_of(
            "instructions",
            object_with(
                Instruction,
                kind=text,
                arguments=value_that("an object", lambda value: isinstance(value, Mapping)),
            ),
        ),
        '[{"kind": "punctuation:no_comma", "arguments": {}}]',
    ),
    "prediction": (
        object_with(Prediction, of=one_of(Predicted), program=text, output=value_of),
        '{"of": "output", "program": "def f(x): return [x]", "output": [1]}',
    ),
    "harness": (
        object_with(Harness, before=text, after=text),
        '{"after": "assert f(1) == 2\\nprint(\\"\\\\n\\" + input())"}',
    ),
    "messages": (
        list_of("messages", object_with(Turn, role=text, content=text)),
        '[{"role": "user", "content": "Define add(a, b)."}]',
    ),
    "base_tests": (
        value_that("a number of at least 1, or null", lambda value: _is_whole(value) and value > 0),
        "3",
    ),
    "prelude": (text, '"from typing import *"'),
    "publisher": (
        value_that(f"one of {', '.join(_PUBLISHERS)}, or null", _PUBLISHERS.__contains__),
        '"livecodebench"',
    ),
    "grader": (one_of(GradedBy), '"math"'),
}
"""The reader and an example of each field of a row."""

FIELDS = tuple(_SCHEMA)

_OR_NULL = {"limits", *(field.name for field in fields(Problem) if field.default is None)}
"""Fields whose default a row may also write as null."""

# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


def problem_of(row: Mapping[str, Any]) -> Problem:
    """Convert a row into a problem.

    Raises:
        Malformed: a field is wrong; names it, the expected value and an example.
    """
    grader = read_field("grader", row.get("grader", GradedBy.tests))
    _check_fields(row, grader)
    given = {
        name: value for name, value in row.items() if value is not None or name not in _OR_NULL
    }
    given.pop("grader", None)
    defaults = {
        "tests": (),
        "comparison": "checker" if "checker" in given else "tokens",
        "language": default_language(grader),
    }
    read = {**defaults, **{name: read_field(name, value) for name, value in given.items()}}
    problem = Problem(**read)
    if reason := why_not_shared(problem):
        fail("isolation", reason)
    return problem


def default_language(grader: GradedBy) -> str:
    """Return the language of a problem that names none."""
    return "python" if grader in _RUN else "text"


def read_field(name: str, value: Any) -> Any:
    """Check and convert a field's value.

    Raises:
        Malformed: it is wrong; see `problem_of`.
    """
    read, example = _SCHEMA[name]
    try:
        return read(value, name)
    except Malformed as error:
        if isinstance(value, str) and name in ("gold", "bad", "tags"):
            example = json.dumps([value if len(value) <= 40 else f"{value[:40]}…"])
        raise Malformed(f'{error}; write "{name}": {example}') from None


def _check_fields(row: Mapping[str, Any], grader: GradedBy) -> None:
    """Raise if a row lacks a field, or has an unknown one or one of another grader than its own."""
    own = JUDGED_BY[grader]
    needed = ("id", "split", "statement", own)
    missing = [name for name in needed if name not in row]
    if missing:  # an id and a split are easy to make up, so report the statement and tests first
        worst = next((name for name in ("statement", own) if name in missing), missing[0])
        which = "" if grader is GradedBy.tests else f' with "grader": "{grader}"'
        raise Malformed(missing_field(worst, row, f"a problem{which} needs {', '.join(needed)}"))
    for name in row:
        if name not in _SCHEMA:
            fail(name, f"unknown; a problem has the fields {', '.join(FIELDS)}")
    for other, name in JUDGED_BY.items():
        if other is not grader and row.get(name):
            fail(
                name,
                f'needs "grader": "{other}"; the row\'s "grader": "{grader}" needs '
                f'"{own}": {_SCHEMA[own][1]}',
            )


def missing_field(field: str, row: Mapping[str, Any], expected: str) -> str:
    """Return the message for a missing field, with the row's columns and the option that maps one."""
    like = (name for name in _NAMES.get(field, ()) if name in row)
    names = (name if str(name).isprintable() else repr(name) for name in row)
    found = ", ".join(map(str, names)) or "none"
    return (
        f"field '{field}' is missing; {expected}; the row has columns {found}; "
        f"map them with --map {field}={next(like, 'COLUMN')} (in Python: columns=)"
    )
