"""Is an answer the expected one? Strict where peers were found to be forgiving.

Standard output, by a problem's `comparison`:

tokens (default)  whitespace-separated tokens, case-sensitive; integers exact as text, however large; a
                  float within 1e-6 (absolute or relative), only where the *expected* token is a
                  non-integer number
lines             as text, but for blanks at line ends and blank lines at the end
exact             byte for byte, but for one newline at the end

Values of calls compare as data: same structure, equal leaves. Lists and tuples are interchangeable,
since JSON data sets cannot tell them apart; booleans are not integers; a float is tolerated as above
only where the expected value is a non-integer float. `Opaque` equals nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from coding_model_project.errors import DataError
from coding_model_project.types import Opaque, Plain

TOLERANCE = 1e-6
"""Absolute or relative, as Codeforces-style judges use."""


def same_output(expected: str, got: str, comparison: str) -> bool:
    """Whether standard output is as expected.

    Raises:
        DataError: the comparison is unknown.
    """
    try:
        rule = _OUTPUT_RULES[comparison]
    except KeyError:
        raise DataError(
            f"unknown comparison {comparison!r}; known: {', '.join(_OUTPUT_RULES)}"
        ) from None
    return rule(expected, got)


def _tokens(expected: str, got: str) -> bool:
    wanted, found = expected.split(), got.split()
    return len(wanted) == len(found) and all(map(_same_token, wanted, found))


def _same_token(expected: str, got: str) -> bool:
    if expected == got:
        return True
    wanted = _non_integer(expected)
    if wanted is None:
        return False
    try:
        found = float(got)
    except ValueError:
        return False
    return "_" not in got and math.isclose(wanted, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


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
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _exact(expected: str, got: str) -> bool:
    return expected.removesuffix("\n") == got.removesuffix("\n")


_OUTPUT_RULES: dict[str, Callable[[str, str], bool]] = {
    "tokens": _tokens,
    "lines": _lines,
    "exact": _exact,
}


def same_value(expected: Plain, got: Plain | Opaque) -> bool:
    """Whether a call's value is as expected. Both hold only exact built-in types (or Opaque)."""
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(got, (list, tuple))
            and len(expected) == len(got)
            and all(map(same_value, expected, got))
        )
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and len(expected) == len(got)
            and all(key in got and same_value(value, got[key]) for key, value in expected.items())
        )
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return _same_float(expected, got)
    if isinstance(expected, (set, frozenset)):
        return isinstance(got, (set, frozenset)) and expected == got
    return type(expected) is type(got) and expected == got


def _same_float(expected: float, got: float) -> bool:
    if math.isnan(expected):
        return math.isnan(got)
    if math.isinf(expected) or expected.is_integer():
        return expected == got
    return math.isclose(expected, got, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
