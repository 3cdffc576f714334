"""Short forms of verdicts, values and inputs for details, logs and repair; verdicts as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from coding_model_project.codec import members
from coding_model_project.types import (
    Asserts,
    Call,
    ErrorType,
    Isolation,
    Test,
    TestInput,
    TestResult,
    Verdict,
)

_READINGS = (
    "base_passed", "loose_passed", "followed_loosely", "other_rules", "publisher_passed",
)  # fmt: skip
_INPUT_CHARACTERS = 500
_ARGUMENT_BYTES = 1 << 16
"""Bytes of an argument that are shown."""

_MOST_WRITTEN = 1_000
"""Members of a value that is written whole before it is clipped; 64 characters or bits count as one."""


def clip(text: str, max_bytes: int) -> str:
    """Return a text's start and end in at most `max_bytes` of UTF-8; a traceback's end matters most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    tail = max_bytes * 2 // 3
    head = max_bytes - tail - 5  # " … " takes five bytes
    return data[:head].decode("utf-8", "ignore") + " … " + data[-tail:].decode("utf-8", "ignore")


def shown_value(value: object, max_bytes: int) -> str:
    """Return a value's `ordered_repr`, clipped; only the start of a large one.

    A program chooses what it returns, and some values take minutes to write whole and in order.
    """
    try:
        if not _is_large(value):
            return clip(ordered_repr(value), max_bytes)
        text = ""
        for part in _written(value, max_bytes):
            text += part
            if len(text) > max_bytes:
                break
        return clip(text, max_bytes)
    except (ValueError, RecursionError):  # an int with too many digits, or too deep nesting
        return f"a {type(value).__name__} too large to show"


def ordered_repr(value: object) -> str:
    """Return a value's `repr` with the members of sets in order, so that every process shows the same."""
    text = repr(value)
    return "".join(_written(value)) if "{" in text else text


def _written(value: object, most: int | None = None) -> Iterator[str]:
    """Yield the text of a value from its start.

    Args:
        most: characters of each text in a large value; a set in it, which has no start, is its size.
    """
    items: Iterable[object]
    if isinstance(value, dict):
        opening, items, closing = "{", value.items(), "}"
    elif isinstance(value, list):
        opening, items, closing = "[", value, "]"
    elif isinstance(value, tuple):
        opening, items, closing = "(", value, ",)" if len(value) == 1 else ")"
    elif isinstance(value, set | frozenset) and most is not None:
        yield f"a {type(value).__name__} of {len(value)}"
        return
    elif isinstance(value, set | frozenset) and value:
        opening, closing = ("{", "}") if isinstance(value, set) else ("frozenset({", "})")
        items = members(value)
    else:
        yield repr(value[:most] if isinstance(value, str | bytes) else value)
        return
    yield opening
    for number, item in enumerate(items):
        if number:
            yield ", "
        if isinstance(value, dict):
            key, item = item
            yield from _written(key, most)
            yield ": "
        yield from _written(item, most)
    yield closing


def _is_large(value: object) -> bool:
    """Return whether a value has more than `_MOST_WRITTEN` members, at any depth, or as much text."""
    left = _MOST_WRITTEN
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, list | tuple | set | frozenset | dict):
            left -= len(one)
            pending += one if left >= 0 else ()
            pending += one.values() if left >= 0 and isinstance(one, dict) else ()
        elif isinstance(one, str | bytes):
            left -= len(one) >> 6
        elif isinstance(one, int):
            left -= one.bit_length() >> 6
        if left < 0:
            return True
    return False


def shown_input(given: TestInput) -> str:
    """Return a test's input as text: the call, the text on standard input, or the test code.

    Of a large argument it is only the start.
    """
    if isinstance(given, Call):
        shown = (shown_value(one, _ARGUMENT_BYTES) for one in given.args)
        return f"{given.function}({', '.join(shown)})"
    return given.source if isinstance(given, Asserts) else given.text


def brief(verdict: Verdict, tests: Sequence[Test], *, public_passed: bool | None) -> dict[str, Any]:
    """Return the fields of a verdict that are stored for each sample.

    Args:
        tests: the tests that the verdict is about.
        public_passed: whether the program passes the problem's public tests; None if they did not run.

    Returns:
        error: the first failing test's error type, null if accepted; passed and n_tests: counts;
        base_passed, loose_passed, followed_loosely, other_rules, publisher_passed: see `Verdict`,
        absent if None there, as publisher_differs;
        failed_test: the index of the first failing hidden test, with its input and detail;
        public_passed, judge_s, cached, extraction, sandbox; program: `program_hash`, null without one.
    """
    failing = ((n, result) for n, result in enumerate(verdict.results) if result.error is not None)
    number, failed = next(failing, (None, None))
    beside = {name: value for name in _READINGS if (value := getattr(verdict, name)) is not None}
    if verdict.publisher_differs:
        beside["publisher_differs"] = verdict.publisher_differs
    return {
        "error": verdict.error and str(verdict.error),
        "passed": sum(result.error is None for result in verdict.results),
        "n_tests": verdict.n_tests,
        **beside,
        "failed_test": number,
        "input": "" if number is None or not tests else _shown(tests[number].input),
        "detail": failed.detail if failed else "",
        "public_passed": public_passed,
        "judge_s": round(verdict.judge_s, 4),
        "cached": verdict.cached,
        "extraction": verdict.extraction,
        "sandbox": verdict.sandbox,
        "program": None if verdict.code is None else program_hash(verdict.code),
    }


def program_hash(code: str) -> str:
    """Return a short hash of a program."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _shown(given: TestInput) -> str:
    text = shown_input(given)
    return text if len(text) <= _INPUT_CHARACTERS else text[:_INPUT_CHARACTERS] + " …"


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain data."""
    results = [
        asdict(result) | {"error": result.error and str(result.error)} for result in verdict.results
    ]
    return asdict(verdict) | {"results": results}


def verdict_of(plain: dict[str, Any]) -> Verdict:
    """Return the verdict that `plain_verdict` converted."""
    results = tuple(
        TestResult(**result | {"error": result["error"] and ErrorType(result["error"])})
        for result in plain["results"]
    )
    return Verdict(**plain | {"results": results, "isolation": Isolation(plain["isolation"])})
