"""A reader of JSON that others wrote: data sets, models, servers, agents and clients.

It returns only values that every later step can handle: nested at most `MAX_DEPTH` deep, so that they can
be compared, written and sent to other processes, and with text that UTF-8 can encode. As in Python's own
reader, the last of equal keys counts, NaN and Infinity are numbers, and integers keep all their digits.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

import orjson

MAX_DEPTH = 100
"""Maximum number of lists and objects within each other; `codec` has the same limit."""

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
"""Digits that orjson may turn into a float."""


class UnusableValue(ValueError):
    """Valid JSON, but too deep, with half a surrogate pair, or with an integer of too many digits."""


def loads(data: bytes | str, *, repair: bool = False) -> Any:
    """Parse JSON, in time and memory proportional to its length.

    Args:
        repair: replace each half of a surrogate pair by U+FFFD instead of rejecting it.

    Raises:
        ValueError: it is not JSON, or an `UnusableValue`; the message is one line.
    """
    content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if not _LONG_NUMBER.search(content):
        try:
            return shallow(orjson.loads(content))
        except orjson.JSONDecodeError:
            pass  # perhaps NaN, which orjson rejects
    text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogatepass")
    try:
        value = shallow(json.loads(text))
    except (json.JSONDecodeError, UnusableValue):
        raise
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise UnusableValue("an integer with more digits than Python reads") from None
    written = json.dumps(value, ensure_ascii=False)
    whole = encodable(written)
    if whole is not written and not repair:
        raise UnusableValue("text with half a surrogate pair, such as \\ud800")
    return value if whole is written else json.loads(whole)


def line_fault(line: bytes, error: ValueError) -> str:
    """Return why a line of JSON lines is none, with the way out."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 ({error.reason}); convert the file: iconv -f ENCODING -t utf-8"
    if line.strip() in (b"[", b"{", b"[{"):
        return "expected an object on each line; one list over several lines is a .json file"
    return f"invalid JSON, perhaps truncated: {error}"


def encodable(text: str) -> str:
    """Return the text with each half of a surrogate pair, which UTF-8 cannot encode, as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shallow(value: Any) -> Any:
    """Return a decoded value.

    Raises:
        UnusableValue: it nests more than `MAX_DEPTH` lists and objects.
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            item
            for part in level
            for item in (part.values() if isinstance(part, dict) else part)
            if isinstance(item, dict | list)
        ]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> UnusableValue:
    return UnusableValue(f"more than {MAX_DEPTH} lists and objects within each other")
