"""Values of a row's columns: decoded, recognised and described."""

from __future__ import annotations

import ast
import re
from typing import Any

from coding_model_project import strict_json
from coding_model_project.data.loaders.base import Unusable


def decoded_of(value: Any) -> Any:
    """Decode JSON text, however often it was encoded, or the `str` of a Python value.

    Returns:
        The value; text that is neither is returned unchanged. Tuples and arrays become lists.

    Raises:
        Unusable: it is JSON with a value that nothing can handle.
    """
    for _ in range(4):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            value = strict_json.loads(value)
        except strict_json.UnusableValue as error:
            raise Unusable(str(error)) from error
        except ValueError:
            try:
                value = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                break
    if tolist := getattr(value, "tolist", None):
        return tolist()
    return list(value) if isinstance(value, tuple) else value


def json_of(text: str) -> Any:
    """Decode a test's argument or value.

    Raises:
        Unusable: it is not JSON.
    """
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise Unusable(f"a test's argument or value is not JSON: {error}") from error


def looks_like_code(value: Any) -> bool:
    """Return whether a value is text with a Python statement, or with the word `assert`."""
    return isinstance(value, str) and (
        re.search(
            r"^\s*(assert\b|def \w+\(|async def |class \w+|import \w|from \w+ import)", value, re.M
        )
        is not None
        or "assert" in value
    )
