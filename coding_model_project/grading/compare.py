"""Is an answer the expected one? Strict where common judges were found to be forgiving.

Standard output, by a problem's `comparison`:

tokens (default)  whitespace-separated tokens, case-sensitive; integers exact as text, however
                  large; a float is tolerated only where the *expected* token is written as a finite
                  non-integer number ("0.5", "2.0", "1e-3")
lines             as text, but for blanks at line ends and blank lines at the end
exact             as text, but for one newline at the end
last_line         the last line that is not blank, as text; the others are the program's own affair

Values of calls compare as data: same structure, equal leaves.

- Lists and tuples are interchangeable, since JSON data sets cannot tell them apart.
- Booleans equal only booleans. An int may stand for the float expected (2 for 2.0), a float never
  for the int expected, as on standard output.
- A float is tolerated where the expected value is a finite float; nan equals nan, since a test that
  expects it means it.
- Members of sets, and keys of dicts, have no tolerance. `Opaque` equals nothing, nor does what nests
  too deep.

A tolerated float may differ by a problem's `atol`, or by its `rtol` of the expected value.
docs/grading.md lists the pairs that may surprise, each with its reason; a test holds it to this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from coding_model_project.codec import MAX_DEPTH
from coding_model_project.errors import DataError
from coding_model_project.plain import Opaque, Plain

if TYPE_CHECKING:
    from coding_model_project.types import Problem


class Tolerance(NamedTuple):
    """The distance from an expected float that is accepted.

    No dataclass, as `plain` says.
    """

    atol: float = 1e-6
    rtol: float = 1e-6
    """Both as Codeforces-style judges use."""

    @classmethod
    def of(cls, problem: Problem) -> Tolerance:
        """A problem's."""
        return cls(atol=problem.atol, rtol=problem.rtol)

    def accepts(self, expected: float, got: float) -> bool:
        """Return true for a number that is near enough to a finite one."""
        try:
            distance = abs(got - expected)
        except OverflowError:  # an int too large for a float
            return False
        return distance <= max(self.atol, self.rtol * abs(expected))

    def named(self, rule: str) -> str:
        """A rule as a verdict records it: with the tolerance, unless that is the default."""
        if self == DEFAULT:
            return rule
        return f"{rule}(atol={self.atol:g},rtol={self.rtol:g})"


DEFAULT = Tolerance()
_NONE = Tolerance(atol=0.0, rtol=0.0)

OutputRule = Callable[[str, str, Tolerance], bool]


def output_rule(comparison: str) -> OutputRule:
    """The rule (expected, got, tolerance) → same? that a problem's `comparison` names.

    Raises:
        DataError: the comparison is unknown.
    """
    try:
        return _OUTPUT_RULES[comparison]
    except KeyError:
        known = ", ".join(_OUTPUT_RULES)
        raise DataError(f"unknown comparison {comparison!r}; known: {known}") from None


def same_output(expected: str, got: str, comparison: str, tolerance: Tolerance = DEFAULT) -> bool:
    """Whether standard output is as expected.

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
    """The value of a token that is written as a finite number, in digits of ASCII."""
    if "_" in token or not token.isascii():
        return None
    try:
        value = float(token)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


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
    "lines": _lines,
    "exact": _exact,
    "last_line": _last_line,
}


def same_value(
    expected: Plain, got: Plain | Opaque, tolerance: Tolerance = DEFAULT, depth: int = 0
) -> bool:
    """Whether a call's value is as expected. Both hold only exact built-in types (or Opaque)."""
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
    """Values by their keys; in tuples, since None is a value."""
    return {_key(value): (value,) for value in values}


def _key(value: Any) -> Any:
    """A hashable picture in which True is not 1 and nan is nan."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_key, value))
    if isinstance(value, bool) or value != value:
        return type(value), repr(value)
    return value
