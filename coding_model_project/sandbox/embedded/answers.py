"""The host's decoder of programs' answers, which are untrusted."""

from __future__ import annotations

from coding_model_project import codec
from coding_model_project.codec import Opaque, Plain

UNDECODABLE = Opaque("undecodable")
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))

encode = codec.dumps


def decode(data: bytes, max_bytes: int) -> Plain | Opaque:
    """Return the value of an answer, or `UNDECODABLE` for anything else; never raises.

    It takes time proportional to the answer's length, and at most about 30 times its memory: an empty set
    is nine bytes of text and 216 of memory.
    """
    if len(data) > max_bytes:
        return UNDECODABLE
    try:
        value = codec.loads(data)
    except ValueError:
        return UNDECODABLE
    return UNDECODABLE if _nests_too_deep(value) else value


def _nests_too_deep(value: Plain | Opaque) -> bool:
    """Return whether a value nests deeper than `codec.dumps` writes; comparing it may overflow."""
    level: list[object] = [value] if type(value) in _CONTAINERS else []
    depth = 0
    while level and depth <= codec.MAX_DEPTH:
        values = [items.values() for items in level if type(items) is dict]
        level = [
            item
            for items in (*level, *values)
            for item in items  # type: ignore[attr-defined]
            if type(item) in _CONTAINERS
        ]
        depth += 1
    return bool(level)
