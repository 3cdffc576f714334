"""Comparison of an answer with the expected one, stricter than common judges.

Standard output, by a problem's `comparison`:

tokens (default)  whitespace-separated tokens, case-sensitive; integers match exactly as text, at any
                  size; floats have a tolerance only if the *expected* token is written as a finite
                  non-integer number ("0.5", "2.0", "1e-3")
any_case          as tokens, but letters of either case are equal
codecontests      as any_case, but numbers are equal within 1e-5, however they are written, and whole
                  numbers exactly (`ValuesMatch` in CodeContests' tester, which compares as doubles)
lines             text, except for blanks at line ends and blank lines at the end
exact             text, except for one newline at the end
last_line         the last non-blank line as text; the other lines are ignored

Values of calls compare as data: same structure, equal leaves.

- Lists and tuples are interchangeable, since JSON data sets cannot distinguish them.
- Booleans equal only booleans. As on standard output, an int matches an expected float (2 for 2.0), but
  a float never matches an expected int.
- Floats have a tolerance if the expected value is a finite float. nan equals nan, since a test that
  expects nan means it.
- Members of sets and keys of dicts have no tolerance. `Opaque` equals nothing, and neither do values
  that are nested too deeply.

A float within the tolerance differs by at most `atol`, or by at most `rtol` times the expected value.
docs/grading.md lists surprising pairs with reasons; a test keeps it consistent with this file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from coding_model_project.codec import MAX_DEPTH, Opaque, Plain
from coding_model_project.errors import DataError

if TYPE_CHECKING:
    from coding_model_project.types import Problem


class Tolerance(NamedTuple):
    """The accepted distance from an expected float.

    It is not a dataclass, for the reason that `plain` gives.
    """

    atol: float = 1e-6
    rtol: float = 1e-6
    """Both defaults are those of Codeforces-style judges."""

    @classmethod
    def of(cls, problem: Problem) -> Tolerance:
        """Return a problem's tolerance."""
        return cls(atol=problem.atol, rtol=problem.rtol)

    def accepts(self, expected: float, got: float) -> bool:
        """Return whether a number is within the tolerance of a finite one."""
        try:
            distance = abs(got - expected)
        except OverflowError:  # an int too large for a float
            return False
        return distance <= max(self.atol, self.rtol * abs(expected))

    def named(self, rule: str) -> str:
        """Return a rule's name for a verdict, with the tolerance unless that is the default."""
        if self == DEFAULT:
            return rule
        return f"{rule}(atol={self.atol:g},rtol={self.rtol:g})"


DEFAULT = Tolerance()
_NONE = Tolerance(atol=0.0, rtol=0.0)

OutputRule = Callable[[str, str, Tolerance], bool]


def output_rule(comparison: str) -> OutputRule:
    """Return the function (expected, got, tolerance) → bool for a problem's `comparison`.

    Raises:
        DataError: the comparison is unknown.
    """
    try:
        return _OUTPUT_RULES[comparison]
    except KeyError:
        known = ", ".join(_OUTPUT_RULES)
        raise DataError(f"unknown comparison {comparison!r}; known: {known}") from None


def same_output(expected: str, got: str, comparison: str, tolerance: Tolerance = DEFAULT) -> bool:
    """Return whether standard output matches the expected text.

    Raises:
        DataError: the comparison is unknown.
    """
    return output_rule(comparison)(expected, got, tolerance)


def _tokens(expected: str, got: str, tolerance: Tolerance) -> bool:
    wanted, found = expected.split(), got.split()
    return len(wanted) == len(found) and all(
        _same_token(e, g, tolerance) for e, g in zip(wanted, found, strict=True)
    )


def _same_token(expected: str, got: str, tolerance: Tolerance) -> bool:
    if expected == got:
        return True
    wanted, found = _number(expected), _number(got)
    if wanted is None or found is None or not any(c in expected for c in ".eE"):
        return False
    return tolerance.accepts(wanted, found)


def _number(token: str) -> float | None:
    """Return the value of a token that is a finite number in ASCII digits, else None."""
    if "_" in token or not token.isascii():
        return None
    try:
        value = float(token)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _any_case(expected: str, got: str, tolerance: Tolerance) -> bool:
    return _tokens(expected.casefold(), got.casefold(), tolerance)


_WHOLE = re.compile(r"[+-]?\d{1,4000}", re.ASCII)
_CODECONTESTS = Tolerance(atol=1e-5, rtol=0.0)


def _codecontests(expected: str, got: str, _: Tolerance) -> bool:
    wanted, found = expected.casefold().split(), got.casefold().split()
    return len(wanted) == len(found) and all(map(_same_contest_token, wanted, found))


def _same_contest_token(expected: str, got: str) -> bool:
    if expected == got:
        return True
    if _WHOLE.fullmatch(expected) and _WHOLE.fullmatch(got):
        return int(expected) == int(got)
    wanted, found = _number(expected), _number(got)
    return wanted is not None and found is not None and _CODECONTESTS.accepts(wanted, found)


def _lines(expected: str, got: str, _: Tolerance) -> bool:
    return _trimmed(expected) == _trimmed(got)


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _exact(expected: str, got: str, _: Tolerance) -> bool:
    return expected.removesuffix("\n") == got.removesuffix("\n")


def _last_line(expected: str, got: str, _: Tolerance) -> bool:
    return _trimmed(got)[-1] == _trimmed(expected)[-1]


_OUTPUT_RULES: dict[str, OutputRule] = {
    "tokens": _tokens,
    "any_case": _any_case,
    "codecontests": _codecontests,
    "lines": _lines,
    "exact": _exact,
    "last_line": _last_line,
}
OUTPUT_RULES = tuple(_OUTPUT_RULES)
"""Names of the rules for standard output."""


def same_value(
    expected: Plain, got: Plain | Opaque, tolerance: Tolerance = DEFAULT, depth: int = 0
) -> bool:
    """Return whether a call's value matches. Both values hold only exact built-in types (or Opaque)."""
    if depth > MAX_DEPTH:
        return False

    def same(one: Any, other: Any) -> bool:
        return same_value(one, other, tolerance, depth + 1)

    if isinstance(expected, (list, tuple)):
        return (
            isinstance(got, (list, tuple))
            and len(expected) == len(got)
            and all(map(same, expected, got))
        )
    if isinstance(expected, dict):
        if not isinstance(got, dict) or len(expected) != len(got):
            return False
        found = _by_key(got)
        pairs = ((key, value, found.get(_key(key))) for key, value in expected.items())
        return all(
            own is not None
            and same_value(key, own[0], _NONE, depth + 1)
            and same(value, got[own[0]])
            for key, value, own in pairs
        )
    if isinstance(expected, (set, frozenset)):
        if not isinstance(got, (set, frozenset)) or len(expected) != len(got):
            return False
        found = _by_key(got)
        members = ((member, found.get(_key(member))) for member in expected)
        return all(
            own is not None and same_value(member, own[0], _NONE, depth + 1)
            for member, own in members
        )
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return _same_float(expected, got, tolerance)
    if isinstance(expected, complex) and isinstance(got, complex):
        return same(expected.real, got.real) and same(expected.imag, got.imag)
    return type(expected) is type(got) and expected == got


def _same_float(expected: float, got: float, tolerance: Tolerance) -> bool:
    if math.isnan(expected):
        return got != got
    if not math.isfinite(expected):
        return expected == got
    return tolerance.accepts(expected, got)


def _by_key(values: Iterable[Any]) -> dict[Any, tuple[Any]]:
    """Return values by key, each in a tuple, since None is a value."""
    return {_key(value): (value,) for value in values}


def _key(value: Any) -> Any:
    """Return a hashable key that distinguishes True from 1 and makes nan equal nan."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_key, value))
    if isinstance(value, bool) or value != value:
        return type(value), repr(value)
    return value
