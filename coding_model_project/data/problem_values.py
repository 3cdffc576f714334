"""Values in files of problems, and the error for a malformed row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from coding_model_project.codec import MAX_DEPTH, from_json


class Malformed(ValueError):
    """A malformed row. The message starts with the field and ends with the right form."""


def fail(what: str, expected: str) -> NoReturn:
    """Raise `Malformed` with the fault and the right form."""
    raise Malformed(f"{what}: {expected}")


def kind(value: object) -> str:
    """Return the kind of a JSON value in words."""
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
"""`codec`'s tags: the meaning of a one-key object with that key, an example, and a content check."""


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
    """Decode a value of a file in `codec`'s form, with plain JSON objects as dicts with text keys.

    An object whose only key is a tag of `codec` is always the tagged value. Write a dict with only such a
    key with the tag "d".

    Raises:
        Malformed: the content does not fit the tag.
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
            f"an object whose only key is '{tag}' means {meaning}, as in {example}; write a dict with "
            f'only that key as {{"d": [["{tag}", {pair}]]}}',
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
