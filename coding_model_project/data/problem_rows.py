"""Our schema: the fields of a problem's row, and the conversion of a decoded row into a problem.

Each message names the field, the expected and the actual value, and shows the right form. `data.problems`
describes the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from coding_model_project.data.governance import why_not_shared
from coding_model_project.grading.kinds import KINDS
from coding_model_project.grading.maths.gsm8k_answer import LM_EVAL
from coding_model_project.grading.readings import RULES
from coding_model_project.grading.wellformed import LARGEST, is_positive, is_tolerance
from coding_model_project.row_readers import (
    Malformed,
    Reader,
    fail,
    is_text,
    list_of,
    object_with,
    one_of,
    text,
    text_or_null,
    value_that,
)
from coding_model_project.types import Checker, GradedBy, Isolation, Limits, Problem, Protocol, Turn

COLUMN_NAMES: dict[str, list[str]] = yaml.safe_load(
    Path(__file__).with_name("column_names.yaml").read_text("utf-8")
)
"""Names of columns in public files, by our field."""

# ── the schema ────────────────────────────────────────────────────────────────────────────────────


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


_TOLERANCE = value_that("a number of at least 0", is_tolerance, float)
_SECONDS = value_that("a number above 0", is_positive)
_SIZE = value_that(
    "a whole number above 0", lambda value: is_positive(value) and value == int(value), int
)

_PUBLISHERS = (*RULES, LM_EVAL)

_SCHEMA: dict[str, tuple[Reader, str]] = {
    "id": (text, '"mine/1"'),
    "split": (text, '"train"'),
    "statement": (text, '"Define add(a, b)."'),
    **{kind.field: (KINDS[kind].read, KINDS[kind].example) for kind in GradedBy},
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
        value_that("a day or null", is_text, lambda day: date.fromisoformat(day).isoformat()),
        '"2024-08-01"',
    ),
    "tags": (list_of("texts", text), '["lists"]'),
    "gold": (list_of("programs", text), '["def add(a, b): ..."]'),
    "bad": (list_of("programs", text), '["def add(a, b): ..."]'),
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
    defaults: dict[str, Any] = {
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
    return "python" if grader.runs_program else "text"


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
    own = grader.field
    needed = ("id", "split", "statement", own)
    missing = [name for name in needed if name not in row]
    if missing:  # an id and a split are easy to make up, so report the statement and tests first
        worst = next((name for name in ("statement", own) if name in missing), missing[0])
        which = "" if grader is GradedBy.tests else f' with "grader": "{grader}"'
        raise Malformed(missing_field(worst, row, f"a problem{which} needs {', '.join(needed)}"))
    for name in row:
        if name not in _SCHEMA:
            fail(name, f"unknown; a problem has the fields {', '.join(FIELDS)}")
    for other in GradedBy:
        if other is not grader and row.get(other.field):
            fail(
                other.field,
                f'needs "grader": "{other}"; the row\'s "grader": "{grader}" needs '
                f'"{own}": {_SCHEMA[own][1]}',
            )


def missing_field(field: str, row: Mapping[str, Any], expected: str) -> str:
    """Return the message for a missing field, with the row's columns and the option that maps one."""
    like = (name for name in COLUMN_NAMES.get(field, ()) if name in row)
    names = (name if str(name).isprintable() else repr(name) for name in row)
    found = ", ".join(map(str, names)) or "none"
    return (
        f"field '{field}' is missing; {expected}; the row has columns {found}; "
        f"map them with --map {field}={next(like, 'COLUMN')} (in Python: columns=)"
    )
