"""Rules for comparing the values of calls, by a problem's `comparison`.

All other comparisons compare values as data (`grading.compare.same_value`). `equal` is Python's `==`, in
which `True` equals 1 and a list never equals a tuple. EvalPlus's problems expect the value of their
author's solution, by the same rule. Floats have a tolerance, and 16 problems have several right values:

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

Source: `unsafe_execute` and `_special_oracle` of evalplus 0.3.1. docs/evalplus.md lists the differences.
Values are plain data here, so no rule runs code of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from coding_model_project.grading.compare import Tolerance, same_value

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
    return lambda *of: _equal(*of) or accepts(*of)


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
