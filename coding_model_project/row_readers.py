"""Readers of rows that people write: each checks and converts a value, and an error names its field.

Readers of values make up readers of lists and objects:

    read = object_with(Point, x=value_that("a number", is_number), tags=list_of("texts", text))
    read({"x": 1, "tags": [2]}, "points[0]")  # field 'points[0].tags[0]': expected text, got the number 2
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import signature
from typing import Any, NoReturn

from coding_model_project.codec import MAX_DEPTH, tagged

Reader = Callable[[Any, str], Any]
"""Checks and converts the value at a path such as "tests[3].expected"; raises `Malformed`."""


class Malformed(ValueError):
    """A malformed row. The message starts with the field and ends with the right form."""


def fail(path: str, fault: str) -> NoReturn:
    """Raise `Malformed` with the path of a value and its fault, on one line even if a key is not."""
    raise Malformed(" ".join(f"field '{path}': {fault}".split()))


def is_text(value: Any) -> bool:
    """Return whether a value is text."""
    return isinstance(value, str)


def shown(value: Any) -> str:
    """Describe a value for a message: its kind, and the start of its content or its keys."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            start = " ".join(value.split())[:60]
            return f'the text "{start}{"…" if len(value) > 60 else ""}"'
        case int() | float():
            return f"the number {value}"
        case Mapping():
            return f"an object with {', '.join(map(str, list(value)[:8])) or 'no keys'}"
        case []:
            return "an empty list"
        case [first, *_]:
            return f"a list of {len(value)} that begins with {shown(first)}"
    return f"of type {type(value).__name__}"


def value_that(
    expected: str,
    fits: Callable[[Any], bool],
    convert: Callable[[Any], Any] | None = None,
) -> Reader:
    """Return a reader of the values that `fits` accepts and `convert` converts without an error.

    Args:
        expected: a description of these values.
    """

    def read(value: Any, path: str) -> Any:
        try:
            if fits(value):
                return value if convert is None else convert(value)
        except (ValueError, OverflowError):
            pass
        fail(path, f"expected {expected}, got {shown(value)}")

    return read


def one_of(kinds: type[StrEnum]) -> Reader:
    """Return a reader of an enum's values."""
    return value_that(f"one of {', '.join(kinds)}", tuple(kinds).__contains__, kinds)


def list_of(what: str, read: Reader) -> Reader:
    """Return a reader of lists into tuples; `what` describes their items."""

    def read_all(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            fail(path, f"expected a list of {what}, got {shown(value)}")
        return tuple(read(item, f"{path}[{number}]") for number, item in enumerate(value))

    return read_all


def object_with(make: Callable[..., Any], **readers: Reader) -> Reader:
    """Return a reader of objects with these fields, the arguments of `make`, whose defaults it uses."""
    parameters = signature(make).parameters.values()
    needed = [one.name for one in parameters if one.default is one.empty]
    known = ", ".join(readers)

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            fail(path, f"expected an object with {known}, got {shown(value)}")
        given = {}
        for name, item in value.items():
            if name not in readers:
                fail(f"{path}.{name}", f"unknown; expected {known}")
            given[name] = readers[name](item, f"{path}.{name}")
        for name in needed:
            if name not in given:
                fail(f"{path}.{name}", "is missing")
        return make(**given)

    return read


text = value_that("text", lambda value: isinstance(value, str))
text_or_null = value_that("text or null", lambda value: value is None or isinstance(value, str))


# ── plain values ──────────────────────────────────────────────────────────────────────────────────


def value_of(picture: Any, path: str, depth: int = 0) -> Any:
    """Decode a value in `codec`'s form, with plain JSON objects as dicts with text keys.

    An object whose only key is a tag of `codec` is always the tagged value. Write a dict with only such a
    key with the tag "d".

    Raises:
        Malformed: the content does not fit the tag.
    """
    if depth > MAX_DEPTH:
        fail(path, f"values may be nested at most {MAX_DEPTH} deep")
    if isinstance(picture, list):
        return [value_of(item, path, depth + 1) for item in picture]
    if isinstance(picture, (str, int, float)) or not isinstance(picture, Mapping):
        return picture
    tag = next(iter(picture)) if len(picture) == 1 else None
    inner = {key: value_of(item, path, depth + 1) for key, item in picture.items()}
    if tag not in _TAGS:
        return inner
    try:
        if tag == "o" or (tag == "c" and len(inner[tag]) != 2):
            raise ValueError(f"not the content of {tag!r}")
        return tagged([(tag, inner[tag])])
    except (TypeError, ValueError, OverflowError) as error:
        if tag in "dsz" and isinstance(error, TypeError):
            fail(
                path,
                f"keys and members of sets cannot be lists, dicts or sets; write a tuple {_TUPLE}",
            )
        meaning, example = _TAGS[tag]
        content = json.dumps(picture[tag])
        content = content if len(content) <= 40 else "…"
        fail(
            path,
            f"an object whose only key is '{tag}' means {meaning}, as in {example}; write a dict with "
            f'only that key as {{"d": [["{tag}", {content}]]}}',
        )


_TUPLE = '{"t": [1, 2]}'
_TAGS = {
    "i": ("a large integer", '{"i": "0x10"}'),
    "f": ("nan or infinity", '{"f": "nan"}'),
    "t": ("a tuple", _TUPLE),
    "d": ("a dict by its pairs", '{"d": [[1, "a"]]}'),
    "s": ("a set", '{"s": [1, 2]}'),
    "z": ("a frozenset", '{"z": [1, 2]}'),
    "b": ("bytes", '{"b": "ff00"}'),
    "c": ("a complex number", '{"c": [0.0, 1.0]}'),
    "o": ("a value that is not data", '{"o": "name"}'),
}
"""`codec`'s tags: the meaning of a one-key object with that key, and an example."""
