"""Arguments and expected values in files of problems."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coding_model_project.codec import MAX_DEPTH, tagged
from coding_model_project.data.row_readers import fail


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
