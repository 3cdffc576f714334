"""Values and inputs as one would write them, cut to a length: for details, logs and repair."""

from __future__ import annotations

from coding_model_project.types import Asserts, Call, TestInput


def clip(text: str, max_bytes: int) -> str:
    """A text's start and end, in at most `max_bytes` of UTF-8; a traceback's end says most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    tail = max_bytes * 2 // 3
    head = max_bytes - tail - 5  # " … " takes five bytes
    return data[:head].decode("utf-8", "ignore") + " … " + data[-tail:].decode("utf-8", "ignore")


def shown_value(value: object, max_bytes: int) -> str:
    """A value as Python writes it, clipped."""
    try:
        return clip(repr(value), max_bytes)
    except (ValueError, RecursionError):  # an int of too many digits to print, too deep a nesting
        return f"a {type(value).__name__} too large to show"


def shown_input(given: TestInput) -> str:
    """A test's input: the call, the text on standard input, or the test code."""
    if isinstance(given, Call):
        return f"{given.function}({', '.join(map(repr, given.args))})"
    return given.source if isinstance(given, Asserts) else given.text
