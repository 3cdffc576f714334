"""Values as files of problems write them, and the error of a row that is not a problem."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from coding_model_project.codec import MAX_DEPTH, from_json


class Malformed(ValueError):
    """A row that is not a problem. The message starts with the field and ends in the right form."""


def fail(what: str, expected: str) -> NoReturn:
    """Raise the error of a field: what is wrong, and the right form."""
    raise Malformed(f"{what}: {expected}")


def kind(value: object) -> str:
    """A JSON value's kind, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    for types, word in (((int, float), "a number"), ((str,), "text"), ((list, tuple), "a list")):
        if isinstance(value, types):
            return word
    return "an object" if isinstance(value, Mapping) else type(value).__name__


_TAGS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "i": ("a large integer", '{"i": "0x10"}', lambda content: _matches(r"-?0x[0-9a-f]+", content)),
    "f": ("nan or infinity", '{"f": "nan"}', lambda content: _matches("nan|-?inf", content)),
    "t": ("a tuple", '{"t": [1, 2]}', lambda content: isinstance(content, list)),
    "d": ("a dict by its pairs", '{"d": [[1, "a"]]}', lambda content: _are_pairs(content)),
    "s": ("a set", '{"s": [1, 2]}', lambda content: isinstance(content, list)),
    "z": ("a frozenset", '{"z": [1, 2]}', lambda content: isinstance(content, list)),
    "b": ("bytes", '{"b": "ff00"}', lambda content: _matches("([0-9a-f]{2})*", content)),
    "c": ("a complex number", '{"c": [0.0, 1.0]}', lambda content: _are_numbers(content)),
    "o": ("a value that is not data", '{"o": "name"}', lambda _: False),
}
"""`codec`'s tags: what a one-key object of that name stands for, and its form."""


def _matches(pattern: str, content: object) -> bool:
    return isinstance(content, str) and re.fullmatch(pattern, content) is not None


def _are_pairs(content: object) -> bool:
    return isinstance(content, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in content
    )


def _are_numbers(content: object) -> bool:
    return (
        isinstance(content, list)
        and len(content) == 2
        and not any(
            isinstance(part, bool) or not isinstance(part, (int, float, Mapping))
            for part in content
        )
    )


def value_of(picture: Any, field: str, depth: int = 0) -> Any:
    """A value as written in a file: `codec`'s form, and plain JSON objects as dicts with text keys.

    An object with one key that is a tag of `codec` is always the tagged value; a dict with such a key
    alone is written with the tag "d".

    Raises:
        Malformed: a tag with content of another form.
    """
    if depth > MAX_DEPTH:
        fail(f"field '{field}'", f"values may be nested at most {MAX_DEPTH} deep")
    if isinstance(picture, list):
        return [value_of(item, field, depth + 1) for item in picture]
    if not isinstance(picture, Mapping):
        return picture
    tag = next(iter(picture)) if len(picture) == 1 else None
    if tag not in _TAGS:
        return {key: value_of(item, field, depth + 1) for key, item in picture.items()}
    content = picture[tag]
    meaning, example, fits = _TAGS[tag]
    if not fits(content):
        pair = json.dumps(content)
        pair = pair if len(pair) <= 40 else "…"
        fail(
            f"field '{field}'",
            f"an object whose only key is '{tag}' stands for {meaning}, as in {example}; a dict with "
            f'that key alone is written {{"d": [["{tag}", {pair}]]}}',
        )
    try:
        return _tagged(tag, content, field, depth + 1)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, Malformed):
            raise
        why = f"the content of '{tag}' is not {meaning}; write it as in {example}"
        if tag in "dsz":
            why = (
                'keys and members of sets cannot be lists, dicts or sets; write a tuple {"t": […]}'
            )
        raise Malformed(f"field '{field}': {why}") from error


def _tagged(tag: str, content: Any, field: str, depth: int) -> Any:
    def inner(item: Any) -> Any:
        return value_of(item, field, depth)

    if tag == "d":
        return {inner(key): inner(item) for key, item in content}
    if tag in "tsz":
        return {"t": tuple, "s": set, "z": frozenset}[tag](map(inner, content))
    if tag == "c":
        return complex(*map(inner, content))
    return from_json({tag: content})
