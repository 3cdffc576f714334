"""Files that are written whole: at any time, and after a kill, they have the old content or the new."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Provide a path beside `path` to write to; on a normal exit that file takes its place."""
    partial = path.with_name(path.name + ".partial")
    yield partial
    partial.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a text."""
    with replacing(path) as partial:
        partial.write_text(text)


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON; dataclasses become objects."""
    write_text(path, json.dumps(content, indent=2, default=_by_name) + "\n")


def _by_name(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields; `asdict` breaks Counters in Python 3.11."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write rows as lines of JSON, and make the parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("wb") as file:
        file.writelines(orjson.dumps(row) + b"\n" for row in rows)
