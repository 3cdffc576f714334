"""Is an answer the expected one? Strict where common judges were found to be forgiving.

Standard output, by a problem's `comparison`:

tokens (default)  whitespace-separated tokens, case-sensitive; integers exact as text, however
                  large; a float within 1e-6 (absolute or relative), only where the *expected*
                  token is written as a finite non-integer number ("0.5", "2.0", "1e-3")
lines             as text, but for blanks at line ends and blank lines at the end
exact             as text, but for one newline at the end

Values of calls compare as data: same structure, equal leaves.

- Lists and tuples are interchangeable, since JSON data sets cannot tell them apart.
- Booleans equal only booleans. An int may stand for the float expected (2 for 2.0), a float never
  for the int expected, as on standard output.
- A float is tolerated as above only where the expected value is a float with a fraction; nan
  equals nan, since a test that expects it means it.
- Sets, and the keys of dicts, are exact. `Opaque` equals nothing, nor does what nests too deep.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from coding_model_project.codec import MAX_DEPTH
from coding_model_project.errors import DataError
from coding_model_project.types import Opaque, Plain

TOLERANCE = 1e-6
"""Absolute or relative, as Codeforces-style judges use."""

OutputRule = Callable[[str, str], bool]


def output_rule(comparison: str) -> OutputRule:
    """The rule (expected, got) → same? that a problem's `comparison` names.

    Raises:
        DataError: the comparison is unknown.
    """
    try:
        return _OUTPUT_RULES[comparison]
    except KeyError:
        known = ", ".join(_OUTPUT_RULES)
        raise DataError(f"unknown comparison {comparison!r}; known: {known}") from None


def same_output(expected: str, got: str, comparison: str) -> bool:
    """Whether standard output is as expected.

    Raises:
        DataError: the comparison is unknown.
    """
    return output_rule(comparison)(expected, got)


def _tokens(expected: str, got: str) -> bool:
    wanted, found = expected.split(), got.split()
    return len(wanted) == len(found) and all(map(_same_token, wanted, found))


def _same_token(expected: str, got: str) -> bool:
    if expected == got:
        return True
    wanted = _non_integer(expected)
    if wanted is None or "_" in got:
        return False
    try:
        return math.isclose(wanted, float(got), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except ValueError:
        return False


def _non_integer(token: str) -> float | None:
    """The token's value if it is written as a finite number with a fraction or an exponent."""
    if not any(c in token for c in ".eE") or "_" in token:
        return None
    try:
        value = float(token)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _lines(expected: str, got: str) -> bool:
    return _trimmed(expected) == _trimmed(got)


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _exact(expected: str, got: str) -> bool:
    return expected.removesuffix("\n") == got.removesuffix("\n")


_OUTPUT_RULES: dict[str, OutputRule] = {"tokens": _tokens, "lines": _lines, "exact": _exact}


def same_value(expected: Plain, got: Plain | Opaque, depth: int = 0) -> bool:
    """Whether a call's value is as expected. Both hold only exact built-in types (or Opaque)."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(got, (list, tuple))
            and len(expected) == len(got)
            and all(same_value(e, g, depth + 1) for e, g in zip(expected, got, strict=True))
        )
    if isinstance(expected, dict):
        if not isinstance(got, dict) or len(expected) != len(got):
            return False
        found = {_key(key): value for key, value in got.items()}
        return all(
            _key(key) in found and same_value(value, found[_key(key)], depth + 1)
            for key, value in expected.items()
        )
    if isinstance(expected, (set, frozenset)):
        return isinstance(got, (set, frozenset)) and _key(expected) == _key(got)
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return _same_float(expected, got)
    return type(expected) is type(got) and expected == got


def _same_float(expected: float, got: float) -> bool:
    if math.isnan(expected):
        return got != got
    if math.isinf(expected) or expected.is_integer():
        return expected == got
    try:
        return math.isclose(expected, got, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:  # an int too large for a float
        return False


def _key(value: Any) -> Any:
    """A hashable picture in which True is not 1 and nan is nan."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_key, value))
    if isinstance(value, bool) or value != value:
        return type(value), repr(value)
    return value
