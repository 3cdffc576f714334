"""Checked access to a row's fields; rows come with requests and may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from coding_model_project.server.requests import BadRequest

_Kind = TypeVar("_Kind")
Row = Mapping[str, Any]
"""A row as in the request's JSON."""


def text_of(row: Row, key: str) -> str:
    """Return a field that must be text.

    Raises:
        BadRequest: the field is missing or something else.
    """
    return _field(row, key, str, "text")


def texts_of(row: Row, key: str) -> list[str]:
    """Return a field that must be a list of texts.

    Raises:
        BadRequest: the field is missing or something else.
    """
    found = _field(row, key, list, "a list of texts")
    return [text_of({key: text}, key) for text in found]


def within(row: Row, key: str) -> Row:
    """Return a field that must be an object.

    Raises:
        BadRequest: the field is missing or something else.
    """
    return _field(row, key, dict, "an object")


def labels_of(row: Row) -> dict[str, Any]:
    """Return a row's labels; empty if it has none.

    Raises:
        BadRequest: they are not an object.
    """
    return dict(within(row, "labels")) if row.get("labels") else {}


def row_id(row: Row, default: int | None = None, key: str = "id") -> int | str:
    """Return a row's id.

    Raises:
        BadRequest: it is missing, or neither a number nor text.
    """
    found = row.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise BadRequest(f"the row's {key!r} must be a number or text, not {_kind(found)}")
    return found


def _field(row: Row, key: str, kind: type[_Kind], expected: str) -> _Kind:
    found = row.get(key)
    if not isinstance(found, kind):
        raise BadRequest(f"the row's {key!r} must be {expected}, not {_kind(found)}")
    return found


def _kind(found: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value"}
    return "nothing" if found is None else names.get(type(found), "a number")
