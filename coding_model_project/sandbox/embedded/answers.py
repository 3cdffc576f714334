"""The host's end of the wire: what a program answered, decoded without trusting it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from coding_model_project import codec
from coding_model_project.types import Opaque, Plain

UNDECODABLE = Opaque("undecodable")
_FEW = 1000
"""Elements of a set or dict that cannot take long to build, however their hashes collide."""

encode = codec.dumps


def decode(data: bytes, max_bytes: int) -> Plain | Opaque:
    """The value of an answer; `UNDECODABLE` for anything that is not one. Never raises."""
    if len(data) > max_bytes:
        return UNDECODABLE
    try:
        if len(data) > _FEW:
            _refuse_collisions(json.loads(data))
        return codec.loads(data)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        return UNDECODABLE


def _refuse_collisions(picture: Any) -> None:
    """Raises ValueError for a set or dict whose elements share hashes: building it is quadratic."""
    parts, pending = [], [picture]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            for tag, content in part.items():
                if isinstance(content, list):
                    pending += content
                    parts.append((tag, content))
    for tag, content in reversed(
        parts
    ):  # what is inside of an element first: it is built for its hash
        if tag in ("s", "z", "d") and len(content) > _FEW:
            keys = [item[0] for item in content] if tag == "d" else content
            hashes = Counter(hash(codec.from_json(key)) for key in keys)
            if max(hashes.values()) > _FEW:
                raise ValueError("elements share hashes")
