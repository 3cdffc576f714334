"""Conversion of a decoded JSON object into a problem, with messages for the author of the file.

Each message names the field, the expected and the actual value, and shows the right form. `data.problems`
describes the schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date
from typing import Any, NoReturn, TypeVar

from coding_model_project.data.problem_values import Malformed, fail, kind, value_of
from coding_model_project.grading.wellformed import is_tolerance
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
    TestInput,
    Turn,
)

REQUIRED = ("id", "split", "statement", "tests")
FIELDS = (*(field.name for field in fields(Problem)), "grader")

JUDGED_BY = {
    GradedBy.tests: "tests",
    GradedBy.harbor: "task",
    GradedBy.math: "answer",
    GradedBy.instructions: "instructions",
    GradedBy.prediction: "prediction",
    GradedBy.harness: "harness",
}
"""The field for each grader."""

_EXAMPLES = {
    GradedBy.tests: '"tests": [{"stdin": "1 2", "expected": "3"}]',
    GradedBy.harbor: '"task": "tasks/17"',
    GradedBy.math: '"answer": "42"',
    GradedBy.instructions: '"instructions": [{"kind": "punctuation:no_comma", "arguments": {}}]',
    GradedBy.prediction: (
        '"prediction": {"of": "output", "program": "def f(x): return [x]", "output": [1]}'
    ),
    GradedBy.harness: '"harness": {"after": "assert f(1) == 2\\nprint(\\"\\\\n\\" + input())"}',
}
"""An example of each grader's field."""

_RUN = (GradedBy.tests, GradedBy.harbor, GradedBy.harness)
"""Graders that run a program."""

_TEST_EXAMPLE = '{"call": "f", "args": [1, 2], "expected": 3}'
_TEST_FIELDS = {
    "stdin": {"stdin", "expected", "public"},
    "call": {"call", "args", "expected", "public"},
    "asserts": {"asserts", "entry_point", "expected", "public"},
}
_SYNONYMS = {
    "id": ("task_id", "problem_id", "question_id", "uid", "name"),
    "statement": ("question", "problem", "prompt", "description", "instruction", "text", "content"),
    "tests": ("test_cases", "input_output", "test_list", "test", "test_code", "testcases"),
    "gold": ("solution", "solutions", "canonical_solution", "answer", "code"),
    "question": ("problem", "prompt", "statement", "description", "instruction", "text"),
}
"""Names of our fields in public files, to suggest the right `--map`."""


def problem_of(row: Mapping[str, Any]) -> Problem:
    """Convert a row into a problem.

    Raises:
        Malformed: a field is wrong; names it, the expected value and an example.
    """
    unknown = sorted(row.keys() - set(FIELDS))
    grader = _grader(row)
    own_field = JUDGED_BY[grader]
    needed = (*(name for name in REQUIRED if name != "tests"), own_field)
    missing = [name for name in needed if name not in row]
    if missing:  # an id and a split are easy to make up, so report the statement and tests first
        worst = next((name for name in ("statement", own_field) if name in missing), missing[0])
        raise Malformed(missing_field(worst, row, _needs(grader, needed)))
    if unknown:
        fail(f"unknown field '{unknown[0]}'", f"a problem has the fields {', '.join(FIELDS)}")
    _check_alone(row, grader)
    checker = _checker(row["checker"]) if row.get("checker") is not None else None
    comparison = "tokens" if checker is None else "checker"
    return Problem(
        id=_text(row, "id", "mine/1"),
        split=_text(row, "split", "train"),
        statement=_text(row, "statement", "Define add(a, b)."),
        tests=_tests(row.get("tests", ())),
        limits=_limits(row.get("limits")),
        comparison=_text(row, "comparison", "tokens", comparison),
        atol=_tolerance(row, "atol"),
        rtol=_tolerance(row, "rtol"),
        checker=checker,
        isolation=_isolation(row),
        entry_point=_optional(row, "entry_point", str, "text or null", '"entry_point": "add"'),
        language=_text(row, "language", "python", "python" if grader in _RUN else "text"),
        difficulty=_optional(row, "difficulty", int, "a whole number or null", '"difficulty": 2'),
        date=_date(row),
        tags=_texts(row, "tags", "lists"),
        gold=_texts(row, "gold", "def add(a, b): ..."),
        bad=_texts(row, "bad", "def add(a, b): ..."),
        task=_optional(row, "task", str, "a folder", _EXAMPLES[GradedBy.harbor]),
        answer=_answer(row),
        instructions=_instructions(row.get("instructions", ())),
        prediction=_prediction(row.get("prediction")),
        harness=_harness(row.get("harness")),
        messages=_messages(row.get("messages", ())),
        base_tests=_base_tests(row),
    )


def _date(row: Mapping[str, Any]) -> str | None:
    right = '"date": "2024-08-01"'
    value = _optional(row, "date", str, "a day or null", right)
    try:
        return None if value is None else date.fromisoformat(value).isoformat()
    except ValueError:
        fail(f"field 'date': {value!r}", f"expected a day; write {right}")


def _base_tests(row: Mapping[str, Any]) -> int | None:
    right = '"base_tests": 3'
    value = _optional(row, "base_tests", int, "a whole number or null", right)
    if value is not None and value < 1:
        fail(f"field 'base_tests': {value}", f"expected a number of at least 1; write {right}")
    return value


def missing_field(
    field: str, row: Mapping[str, Any], expected: str = f"a problem needs {', '.join(REQUIRED)}"
) -> str:
    """Return the message for a missing field, with the row's columns and the option that maps one."""
    like = (name for name in _SYNONYMS.get(field, ()) if name in row)
    found = ", ".join(map(str, row)) or "none"
    return (
        f"field '{field}' is missing; {expected}; the row has columns {found}; "
        f"map them with --map {field}={next(like, 'COLUMN')} (in Python: columns=)"
    )


def _needs(grader: GradedBy, needed: Sequence[str]) -> str:
    which = "" if grader is GradedBy.tests else f' with "grader": "{grader}"'
    return f"a problem{which} needs {', '.join(needed)}"


_Value = TypeVar("_Value")


def _expect(field: str, expected: str, value: object, example: str) -> NoReturn:
    raise Malformed(f"field '{field}': expected {expected}, got {kind(value)}; write {example}")


def _text(row: Mapping[str, Any], field: str, example: str, default: str | None = None) -> str:
    value = row.get(field, default)
    if not isinstance(value, str):
        _expect(field, "text", value, f'"{field}": "{example}"')
    return value


def _optional(
    row: Mapping[str, Any], field: str, wanted: type[_Value], expected: str, example: str
) -> _Value | None:
    value = row.get(field)
    if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
        _expect(field, expected, value, example)
    return value


def _isolation(row: Mapping[str, Any]) -> Isolation:
    value = row.get("isolation", Isolation.per_test)
    try:
        return Isolation(value)
    except ValueError:
        allowed = " or ".join(f'"{one}"' for one in Isolation)
        _expect("isolation", allowed, value, '"isolation": "shared"')


def _texts(row: Mapping[str, Any], field: str, example: str) -> tuple[str, ...]:
    value = row.get(field, [])
    what = "a list of texts" if field == "tags" else "a list of programs"
    if isinstance(value, str):
        example = value if len(value) <= 40 else f"{value[:40]}…"
    right = f'"{field}": {json.dumps([example])}'
    if not isinstance(value, (list, tuple)):
        _expect(field, what, value, right)
    for number, item in enumerate(value):
        if not isinstance(item, str):
            _expect(f"{field}[{number}]", "text", item, right)
    return tuple(value)


def _tests(value: Any) -> tuple[Test, ...]:
    if not isinstance(value, (list, tuple)):
        _expect("tests", "a list of tests", value, f'"tests": [{_TEST_EXAMPLE}]')
    return tuple(_test(test, f"tests[{number}]") for number, test in enumerate(value))


def _test(row: Any, field: str) -> Test:
    if not isinstance(row, Mapping):
        _expect(field, "an object", row, _TEST_EXAMPLE)
    given = next((name for name in _TEST_FIELDS if name in row), None)
    if given is None:
        fail(
            f"field '{field}'",
            f"expected one of the fields 'stdin', 'call', 'asserts'; write {_TEST_EXAMPLE} or "
            '{"stdin": "1 2", "expected": "3"}',
        )
    unknown = sorted(row.keys() - _TEST_FIELDS[given])
    if unknown:
        known = ", ".join(sorted(_TEST_FIELDS[given]))
        fail(f"field '{field}.{unknown[0]}'", f"unknown; a test with '{given}' has {known}")
    if not isinstance(row[given], str):
        _expect(f"{field}.{given}", "text", row[given], _example_of(given))
    public = row.get("public", False)
    if not isinstance(public, bool):
        _expect(f"{field}.public", "true or false", public, '"public": true')
    if given != "asserts" and "expected" not in row:
        fail(f"field '{field}.expected'", f"missing; write {_example_of(given)}")
    return Test(
        input=_input(row, given, field),
        expected=_expected(row, given, field),
        public=public,
    )


def _example_of(given: str) -> str:
    return {
        "stdin": '{"stdin": "1 2", "expected": "3"}',
        "call": _TEST_EXAMPLE,
        "asserts": '{"asserts": "assert f(1) == 2", "entry_point": "f"}',
    }[given]


def _input(row: Mapping[str, Any], given: str, field: str) -> TestInput:
    if given == "stdin":
        return Stdin(row["stdin"])
    if given == "asserts":
        entry_point = row.get("entry_point")
        if entry_point is not None and not isinstance(entry_point, str):
            _expect(f"{field}.entry_point", "text or null", entry_point, _example_of(given))
        return Asserts(source=row["asserts"], entry_point=entry_point)
    args = row.get("args")
    if not isinstance(args, list):
        _expect(f"{field}.args", "a list of the call's arguments", args, _TEST_EXAMPLE)
    return Call(
        function=row["call"],
        args=tuple(value_of(arg, f"{field}.args[{i}]") for i, arg in enumerate(args)),
    )


def _expected(row: Mapping[str, Any], given: str, field: str) -> Any:
    expected = row.get("expected")
    if given == "stdin" and not isinstance(expected, str):
        example = _example_of(given)
        _expect(f"{field}.expected", "the expected output as text", expected, example)
    return value_of(expected, f"{field}.expected")


def _limits(value: Any) -> Limits:
    if value is None:
        return Limits()
    right = '"limits": {"cpu_s": 5, "wall_s": 15, "memory_mb": 512, "output_kb": 1024}'
    if not isinstance(value, Mapping):
        _expect("limits", "an object", value, right)
    known = {field.name: field.type for field in fields(Limits)}
    given: dict[str, Any] = {}
    for name, number in value.items():
        if name not in known:
            fail(f"field 'limits.{name}'", f"unknown; the limits are {', '.join(known)}: {right}")
        whole = known[name] == "int"
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not is_number or not 0 < number < math.inf or (whole and number != int(number)):
            expected = "a whole number above 0" if whole else "a number above 0"
            shown = json.dumps(number) if is_number else kind(number)
            fail(f"limits.{name}: {shown}", f"expected {expected}; write {right}")
        given[name] = int(number) if whole else number
    return Limits(**given)


def _tolerance(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name, 1e-6)
    if not is_tolerance(value):
        expected = "a number of at least 0"
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            fail(f"field '{name}': {value}", f'expected {expected}; write "{name}": 1e-6')
        _expect(name, expected, value, f'"{name}": 1e-6')
    return float(value)


def _checker(value: Any) -> Checker:
    right = '"checker": {"source": "import sys…", "language": "python", "protocol": "testlib"}'
    if not isinstance(value, Mapping):
        _expect("checker", "an object", value, right)
    unknown = sorted(value.keys() - {field.name for field in fields(Checker)})
    if unknown:
        fail(f"field 'checker.{unknown[0]}'", f"unknown; write {right}")
    for name in ("source", "language"):
        text = value.get(name, "python" if name == "language" else None)
        if not isinstance(text, str):
            _expect(f"checker.{name}", "text", text, right)
    protocol = value.get("protocol", Protocol.testlib)
    if protocol not in tuple(Protocol):
        fail(f"field 'checker.protocol': {protocol!r}", f"expected {' or '.join(Protocol)}")
    return Checker(
        source=value["source"],
        language=value.get("language", "python"),
        protocol=Protocol(protocol),
    )


def _grader(row: Mapping[str, Any]) -> GradedBy:
    """Return the grader that a row names; by default, tests."""
    name = row.get("grader", GradedBy.tests)
    if name not in tuple(GradedBy):
        fail(f"field 'grader': {name!r}", f"expected one of {', '.join(GradedBy)}")
    return GradedBy(name)


def _check_alone(row: Mapping[str, Any], grader: GradedBy) -> None:
    """Raise if the row has a field of another grader than its own."""
    for other, field in JUDGED_BY.items():
        if other is not grader and row.get(field):
            own, example = _EXAMPLES[grader], _EXAMPLES[other]
            fail(
                f"field '{field}'",
                f'belongs to "grader": "{other}"; a problem with "grader": "{grader}" has {own}'
                if grader is not GradedBy.tests
                else f'needs "grader": "{other}" too; write "grader": "{other}", {example}',
            )


def _answer(row: Mapping[str, Any]) -> str | None:
    answer = _optional(row, "answer", str, "text", _EXAMPLES[GradedBy.math])
    if answer is not None and not answer.strip():
        fail("field 'answer'", f"is empty; write {_EXAMPLES[GradedBy.math]}")
    return answer


def _instructions(value: Any) -> tuple[Instruction, ...]:
    right = _EXAMPLES[GradedBy.instructions]
    if not isinstance(value, (list, tuple)):
        _expect("instructions", "a list", value, right)
    found = []
    for number, item in enumerate(value):
        field = f"instructions[{number}]"
        if not isinstance(item, Mapping) or item.keys() - {"kind", "arguments"}:
            _expect(field, "an object with kind and arguments", item, right)
        kind, arguments = item.get("kind"), item.get("arguments", {})
        if not isinstance(kind, str):
            _expect(f"{field}.kind", "text", kind, right)
        if not isinstance(arguments, Mapping):
            _expect(f"{field}.arguments", "an object", arguments, right)
        found.append(Instruction(kind, {str(name): one for name, one in arguments.items()}))
    return tuple(found)


def _messages(value: Any) -> tuple[Turn, ...]:
    right = '"messages": [{"role": "user", "content": "Define add(a, b)."}]'
    if not isinstance(value, (list, tuple)):
        _expect("messages", "a list", value, right)
    for number, turn in enumerate(value):
        if not isinstance(turn, Mapping) or turn.keys() != {"role", "content"}:
            _expect(f"messages[{number}]", "an object with role and content", turn, right)
        if not all(isinstance(text, str) for text in turn.values()):
            _expect(f"messages[{number}]", "texts", turn, right)
    return tuple(Turn(**turn) for turn in value)


def _prediction(value: Any) -> Prediction | None:
    if value is None:
        return None
    right = _EXAMPLES[GradedBy.prediction]
    names = {field.name for field in fields(Prediction)}
    if not isinstance(value, Mapping) or value.keys() != names:
        _expect("prediction", f"an object with {', '.join(sorted(names))}", value, right)
    if value["of"] not in tuple(Predicted):
        fail(f"field 'prediction.of': {value['of']!r}", f"expected {' or '.join(Predicted)}")
    if not isinstance(value["program"], str):
        _expect("prediction.program", "text", value["program"], right)
    return Prediction(
        of=Predicted(value["of"]),
        program=value["program"],
        output=value_of(value["output"], "prediction.output"),
    )


def _harness(value: Any) -> Harness | None:
    if value is None:
        return None
    right = _EXAMPLES[GradedBy.harness]
    if not isinstance(value, Mapping) or "after" not in value or value.keys() - {"before", "after"}:
        _expect("harness", "an object with after, and optionally before", value, right)
    for name, text in value.items():
        if not isinstance(text, str):
            _expect(f"harness.{name}", "text", text, right)
    return Harness(**value)
