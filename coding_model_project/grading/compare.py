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

Some problems name another rule for values (`VALUE_RULES`). `equal` is Python's `==`, in which `True`
equals 1 and a list never equals a tuple. EvalPlus's problems expect the value of their author's
solution, by the same rule. Floats have a tolerance, and 16 problems have several right values:

value_or_only_item  equal data, or a list of one that holds it: APPS and TACO wrap some values, and their
                    judges accept both
evalplus            `==`, else numbers of the same type within atol + 1e-7 of the expected. A problem
                    without a tolerance has 1e-6 if it expects a float, or a list or tuple of floats
evalplus_set        the same items, in any order and number (MBPP 2, 7, 111, 140, 232, 249, 579, 769)
evalplus_not_none   the expected boolean, else any value that is None or not None, as expected
evalplus_any_value  any value (MBPP 164)
evalplus_or_zero    also 0 (MBPP 295)
evalplus_pyramid    also the surface for a height measured from the base (MBPP 581)
evalplus_digits     also the distance of numbers padded to the same length (MBPP 558)
evalplus_root       any root: the polynomial's value is within atol of 0 (HumanEval 32)

Source: `unsafe_execute` and `_special_oracle` of evalplus 0.3.1. docs/evalplus.md lists the
differences. Values are plain data here, so no rule runs code of the program. Exported tasks carry this
module.

docs/grading.md lists surprising pairs with reasons; a test keeps it consistent with this file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from coding_model_project.codec import MAX_DEPTH, Opaque, Plain
from coding_model_project.errors import DataError
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Isolation,
    Problem,
    Stdin,
    Test,
    TestInput,
)

if TYPE_CHECKING:
    from coding_model_project.types import Problem


class Tolerance(NamedTuple):
    """The accepted distance from an expected float."""

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


Arguments = Sequence[Any]
ValueRule = Callable[[Arguments, Any, Any, Tolerance], bool]
"""A function (arguments, expected, got, tolerance) → bool."""

Accepts = Callable[[Arguments, Any, Any, float], bool]

_FLOATS_ATOL = 1e-6
"""Absolute tolerance of a problem that expects floats and has no tolerance of its own."""


def value_rule(comparison: str) -> ValueRule:
    """Return the rule for values of calls; by default they compare as data."""
    return VALUE_RULES.get(comparison, _as_data)


def _as_data(_arguments: Arguments, expected: Any, got: Any, tolerance: Tolerance) -> bool:
    return same_value(expected, got, tolerance)


def _or_in_list(_arguments: Arguments, expected: Any, got: Any, tolerance: Tolerance) -> bool:
    return same_value(expected, got, tolerance) or same_value([expected], got, tolerance)


def _equal(_arguments: Arguments, expected: Any, got: Any, _atol: object) -> bool:
    return bool(got == expected)


def _or_equal(accepts: Accepts) -> Accepts:
    """Return a rule that accepts equal values, and any value that `accepts` does."""
    return lambda of, expected, got, atol: bool(got == expected) or accepts(of, expected, got, atol)


def _same_items(_arguments: Arguments, expected: Any, got: Any, _atol: float) -> bool:
    return set(got) == set(expected)


def _not_none(_arguments: Arguments, expected: Any, got: Any, _atol: float) -> bool:
    return got == expected if isinstance(got, bool) else expected == (got is not None)


def _pyramid(arguments: Arguments, _expected: Any, got: Any, atol: float) -> bool:
    base, height = arguments
    slant = math.hypot(base / 2, height)
    return abs(got - round(base * base + 2 * base * slant)) <= atol


def _digits(arguments: Arguments, _expected: Any, got: Any, _atol: float) -> bool:
    one, other = map(str, arguments)
    length = max(len(one), len(other))
    pairs = zip(one.zfill(length), other.zfill(length), strict=True)
    return bool(got == sum(abs(int(a) - int(b)) for a, b in pairs))


def _evalplus(accepts: Accepts) -> ValueRule:
    def rule(arguments: Arguments, expected: Any, got: Any, tolerance: Tolerance) -> bool:
        atol = tolerance.atol
        try:
            if accepts(arguments, expected, got, atol):
                return True
            if atol == 0 and _are_floats(expected):
                atol = _FLOATS_ATOL
            return atol != 0 and type(got) is type(expected) and _near(expected, got, atol)
        except (TypeError, ValueError, ArithmeticError):  # e.g. None - 1: a value of another type
            return False

    return rule


def _root(arguments: Arguments, _expected: Any, got: Any, tolerance: Tolerance) -> bool:
    try:
        (coefficients,) = arguments
        value = sum(one * math.pow(got, power) for power, one in enumerate(coefficients))
    except (TypeError, ValueError, ArithmeticError):
        return False
    return abs(value) <= tolerance.atol


def _are_floats(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(item, float) for item in value)
    return isinstance(value, float)


_RELATIVE = 1e-7


def _near(expected: Any, got: Any, atol: float) -> bool:
    """Return whether numbers, or lists of them at any depth, are near the expected ones."""
    if isinstance(expected, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(got) == len(expected)
            and all(_near(one, other, atol) for one, other in zip(expected, got, strict=True))
        )
    if not _is_number(expected) or not _is_number(got):
        return False
    if got == expected:
        return True
    distance = abs(got - expected)
    return math.isfinite(distance) and distance <= atol + _RELATIVE * abs(expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex)


VALUE_RULES: dict[str, ValueRule] = {
    "equal": _equal,
    "value_or_only_item": _or_in_list,
    "evalplus": _evalplus(_equal),
    "evalplus_set": _evalplus(_same_items),
    "evalplus_not_none": _evalplus(_not_none),
    "evalplus_any_value": _evalplus(lambda *_: True),
    "evalplus_or_zero": _evalplus(
        _or_equal(lambda _arguments, _expected, got, _atol: bool(got == 0))
    ),
    "evalplus_pyramid": _evalplus(_or_equal(_pyramid)),
    "evalplus_digits": _evalplus(_or_equal(_digits)),
    "evalplus_root": _root,
}
"""Rules by `comparison`; all tests of such a problem are calls."""


def inputs_of(tests: Sequence[Test], isolation: Isolation) -> list[TestInput]:
    """Return the tests' inputs. If tests share a process, each call or assert continues one before it."""
    inputs: list[TestInput] = []
    for test in tests:
        given = test.input
        if isinstance(given, Asserts | Call):
            follows = bool(inputs) and type(inputs[-1]) is type(given)
            given = replace(given, continues=follows and isolation is Isolation.shared)
        inputs.append(given)
    return inputs


def is_right(test: Test, execution: Execution, problem: Problem) -> bool:
    """Return whether the answer of a program that finished is the expected one."""
    tolerance = Tolerance.of(problem)
    match test.input:
        case Stdin():
            printed = execution.stdout
            return same_output(str(test.expected), printed, problem.comparison, tolerance)
        case Call(args=args):
            accepts = value_rule(problem.comparison)
            return accepts(args, test.expected, execution.value, tolerance)
        case Asserts():  # exactly True is a pass; any other value is the failing line
            return execution.value is True
