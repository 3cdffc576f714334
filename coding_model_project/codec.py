"""Plain data, the only values that may leave a sandbox, and their exact conversion to JSON and back.

Decoding builds only exact built-in types and never runs code, so hostile bytes are safe to decode.
JSON's own types stand for themselves; every other value is a one-key object:

    {"i": "0x…"} large int   {"f": "nan"} nan, inf   {"t": […]} tuple   {"d": [[k, v]…]} dict
    {"s": […]} set           {"z": […]} frozenset    {"b": "hex"} bytes  {"c": [re, im]} complex
    {"o": "name"} a value that is not plain data, by its type's name

A subclass of a built-in type is encoded as that type, a NumPy scalar as the value that it holds.
Equal sets have equal encodings, in every process, unless `ordered` is false.

Drivers on other servers import this module for each request (`sandbox.carried`). It has no dataclasses:
importing them takes longer than a test.
"""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Plain = (
    None
    | bool
    | int
    | float
    | complex
    | str
    | bytes
    | list["Plain"]
    | tuple["Plain", ...]
    | dict["Plain", "Plain"]
    | set["Plain"]
    | frozenset["Plain"]
)
"""Exact built-in types, the only ones that may leave a sandbox. Any other value arrives as `Opaque`."""

STDERR_TAIL = 2000
"""Bytes of the end of standard error that a sandbox keeps."""


class Opaque:
    """A stand-in for a value that is not plain data, with its type's name. Equals no expected value."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.type_name == other.type_name

    def __hash__(self) -> int:
        return hash(self.type_name)

    def __repr__(self) -> str:
        return f"Opaque({self.type_name!r})"


MAX_DEPTH = 100

NUMPY_KINDS = "biufcSU"
"""Kinds of NumPy's values that are plain data: booleans, numbers and text."""

_EXACT_INT = 2**53


def dumps(value: object, *, ordered: bool = True) -> bytes:
    """Encode a value; one that is not plain data becomes the name of its type.

    Args:
        ordered: write equal sets alike; False saves time where the bytes are only decoded again.
    """
    return json.dumps(to_json(value, ordered=ordered)).encode("ascii")


def loads(data: bytes) -> Plain | Opaque:
    """Decode bytes from `dumps` in time and memory proportional to their length, even if hostile.

    Raises:
        ValueError: the bytes are not an encoded value.
    """
    try:
        return _DECODER.decode(data.decode())
    except (TypeError, LookupError, OverflowError, RecursionError) as error:
        raise ValueError(f"not an encoded value: {error}") from error


def to_json(value: Any, depth: int = 0, ordered: bool = True) -> Any:
    """Return a JSON-serializable form of a value."""
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
        if depth < MAX_DEPTH and _are_themselves(value):
            return value
        return [to_json(item, depth + 1, ordered) for item in value]
    if kind is dict:
        pairs = [
            [to_json(k, depth + 1, ordered), to_json(v, depth + 1, ordered)]
            for k, v in value.items()
        ]
        return {"d": pairs}
    if kind is complex:
        return {"c": [to_json(value.real), to_json(value.imag)]}
    if kind is bytes or kind is bytearray:
        return {"b": bytes(value).hex()}
    if kind in _SEQUENCES:
        items = [to_json(item, depth + 1, ordered) for item in value]
        return {_SEQUENCES[kind]: _ordered(items) if ordered and kind is not tuple else items}
    if kind is Opaque:
        return {"o": value.type_name[:80]}
    return _subclass_to_json(value, depth, ordered)


def _are_themselves(items: list[Any]) -> bool:
    """Return whether JSON writes all items as they are: most lists hold text or small numbers only."""
    kinds = set(map(type, items))
    if kinds == {int}:
        return max(max(items), -min(items)) < _EXACT_INT
    return kinds <= {str, bool}


_SEQUENCES: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}
_BASES: tuple[type, ...] = (int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


def members(value: Iterable[Any]) -> list[Any]:
    """Return a set's members in an order that depends on them only: numbers first, by value.

    Their own order differs with the order of insertion, and between processes, since Python salts the
    hashes of text.
    """
    return sorted(value, key=lambda member: _place(to_json(member)))


def _ordered(pictures: list[Any]) -> list[Any]:
    """Return a set's encoded members in order; large sets, mostly of one type, take little time."""
    kinds = set(map(type, pictures))
    is_plain = kinds == {str} or kinds <= {int, float}
    return sorted(pictures) if is_plain else sorted(pictures, key=_place)


def _place(picture: Any) -> tuple[bool, float, str]:
    """Return an encoded member's sort key."""
    if type(picture) in (int, float):
        return False, picture, ""
    return True, 0, json.dumps(picture)


def _subclass_to_json(value: Any, depth: int, ordered: bool) -> Any:
    """Encode a Counter or namedtuple as its base type, with the base's methods, not overridden ones."""
    for base in _BASES:
        if isinstance(value, base):
            if base is dict:
                return to_json(dict(dict.items(value)), depth, ordered)
            if base in (int, float, complex):
                return to_json(base.__pos__(value), depth, ordered)
            if base is str:
                return to_json(str.__str__(value), depth, ordered)
            return to_json(base(base.__iter__(value)), depth, ordered)
    item = _item_of_numpy(value) if type(value).__module__ == "numpy" else None
    return {"o": type(value).__name__[:80]} if item is None else to_json(item)


def _item_of_numpy(value: Any) -> Any:
    """Return the value that a NumPy scalar, or an array without dimensions, holds; None for others.

    A program can lend its own class NumPy's name and methods, and nothing in its process can prove
    that it did not. It gains nothing: only exact built-in values leave, which it may return anyway.
    """
    if getattr(value, "ndim", None) != 0:
        return None
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    item = value.item() if kind and kind in NUMPY_KINDS else None
    return item if type(item) in _ITEMS else None  # a longdouble's item is a longdouble


_ITEMS = (bool, int, float, complex, str, bytes)


def from_json(picture: Any) -> Any:
    """Return the value that `to_json` encoded.

    Raises:
        ValueError, TypeError, LookupError and the like: not an encoded value.
    """
    if isinstance(picture, list):
        return [from_json(item) for item in picture]
    if isinstance(picture, dict):
        return tagged([(tag, from_json(content)) for tag, content in picture.items()])
    return picture


def tagged(pairs: list[tuple[str, Any]]) -> Any:
    """Decode a one-key object whose content is already decoded.

    JSON's parser calls it from the inside out, so the whole JSON form never exists in memory: it would
    take up to forty times the memory of its text.
    """
    if len(pairs) != 1:
        raise ValueError("an object with other than one key")
    ((tag, content),) = pairs
    match tag, content:
        case "i", str():
            return int(content, 16)
        case "f", str():
            return float(content)
        case "t", list():
            return tuple(content)
        case "d", list():
            return dict(_cheap_to_hash(content, key=_FIRST))
        case "s", list():
            return set(_cheap_to_hash(content))
        case "z", list():
            return frozenset(_cheap_to_hash(content))
        case "b", str():
            return bytes.fromhex(content)
        case "c", list():
            return complex(*content)
        case "o", str():
            return Opaque(content[:80])
        case _:
            raise ValueError(f"tag {tag!r} is unknown, or holds {type(content).__name__}")


_DECODER = json.JSONDecoder(object_pairs_hook=tagged)
_FIRST = operator.itemgetter(0)
_SAME_HASH = 16
"""Maximum number of distinct elements of a set or dict with the same hash. Honest data rarely has any."""


def _cheap_to_hash(items: list[Any], key: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the items, unless a set or dict of them would compare each with many others.

    Raises:
        ValueError: too many distinct elements share a hash.
        TypeError: an element is not hashable.
    """
    if len(items) > _SAME_HASH:
        elements = list(map(key, items)) if key else items
        hashes = list(map(hash, elements))
        crowded = {h for h, count in Counter(hashes).items() if count > _SAME_HASH}
        if crowded:  # equal elements match at the first comparison, so they cost nothing
            first: dict[int, Any] = {}
            for h, element in zip(hashes, elements, strict=True):
                if h in crowded and first.setdefault(h, element) != element:
                    raise ValueError("different elements share a hash")
    return items
