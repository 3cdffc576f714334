"""Plain values as JSON and back, exactly: what crosses a sandbox's wall and what problems are kept as.

Decoding builds only exact built-in types, so hostile bytes are safe to decode; it never runs code.
JSON's own types stand for themselves, all else is a one-key object:

    {"i": "0x…"} large int   {"f": "nan"} nan, inf   {"t": […]} tuple   {"d": [[k, v]…]} dict
    {"s": […]} set           {"z": […]} frozenset    {"b": "hex"} bytes  {"c": [re, im]} complex
    {"o": "name"} a value that is not plain data, by its type's name
"""

from __future__ import annotations

import json
import math
from typing import Any

from coding_model_project.types import Opaque, Plain

MAX_DEPTH = 100
_EXACT_INT = 2**53


def dumps(value: object) -> bytes:
    """Encode a value; what is not plain data becomes its type's name."""
    return json.dumps(to_json(value)).encode("ascii")


def loads(data: bytes) -> Plain | Opaque:
    """Decode `dumps`'s bytes.

    Raises:
        ValueError: the bytes are not an encoded value.
    """
    try:
        return from_json(json.loads(data))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not an encoded value: {error}") from error


def to_json(value: Any, depth: int = 0) -> Any:
    """A JSON-able picture of a value."""
    if depth > MAX_DEPTH:
        return {"o": "too deep"}
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_EXACT_INT < value < _EXACT_INT else {"i": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"f": repr(value)}
    if kind is list:
        return [to_json(item, depth + 1) for item in value]
    if kind is dict:
        pairs = [[to_json(k, depth + 1), to_json(v, depth + 1)] for k, v in value.items()]
        return {"d": pairs}
    if kind is complex:
        return {"c": [to_json(value.real), to_json(value.imag)]}
    if kind is bytes or kind is bytearray:
        return {"b": bytes(value).hex()}
    if kind in _SEQUENCES:
        return {_SEQUENCES[kind]: [to_json(item, depth + 1) for item in value]}
    if kind is Opaque:
        return {"o": value.type_name[:80]}
    return _subclass_to_json(value, depth)


_SEQUENCES: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}
_BASES: tuple[type, ...] = (int, float, str, list, tuple, dict, set, frozenset)


def _subclass_to_json(value: Any, depth: int) -> Any:
    """A Counter or a namedtuple as its base type; read by the base's own methods, not overridden ones."""
    for base in _BASES:
        if isinstance(value, base):
            if base is dict:
                return to_json(dict(dict.items(value)), depth)
            if base in (int, float):
                return to_json(base.__pos__(value), depth)
            if base is str:
                return to_json(str.__str__(value), depth)
            return to_json(base(base.__iter__(value)), depth)  # type: ignore[attr-defined]
    return {"o": type(value).__name__[:80]}


def from_json(picture: Any) -> Any:
    """The value of `to_json`'s picture."""
    if picture is None or isinstance(picture, (bool, int, float, str)):
        return picture
    if isinstance(picture, list):
        return [from_json(item) for item in picture]
    if len(picture) != 1:
        raise ValueError("an object with other than one key")
    ((tag, content),) = picture.items()
    match tag:
        case "i":
            return int(content, 16)
        case "f":
            return float(content)
        case "t":
            return tuple(from_json(item) for item in content)
        case "d":
            return {from_json(k): from_json(v) for k, v in content}
        case "s":
            return {from_json(item) for item in content}
        case "z":
            return frozenset(from_json(item) for item in content)
        case "b":
            return bytes.fromhex(content)
        case "c":
            return complex(from_json(content[0]), from_json(content[1]))
        case "o":
            return Opaque(str(content)[:80])
    raise ValueError(f"unknown tag {tag!r}")
