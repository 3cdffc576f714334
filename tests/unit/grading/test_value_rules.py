"""Comparison of values by EvalPlus's rules, with its tolerance and problems with several answers."""

import math

import pytest

from coding_model_project.errors import DataError
from coding_model_project.grading.compare import Tolerance
from coding_model_project.grading.execution import checked_tests
from coding_model_project.grading.value_rules import VALUE_RULES, value_rule
from coding_model_project.plain import Opaque
from coding_model_project.types import Call, Problem, Stdin, Test

INF, NAN = math.inf, math.nan


def accepts(rule, expected, got, arguments=(), atol=0.0):
    return value_rule(rule)(arguments, expected, got, Tolerance(atol=atol, rtol=1e-7))


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, True),
        (2, 2.0),
        ([1, [2]], [1.0, [2]]),
        (0.3, 0.1 + 0.2),
        ((0.5, 1.0), (0.5, 1.0 + 5e-7)),
        ([1e9], [1e9 + 50]),
        (INF, INF),
        ({1: 2.0}, {1: 2}),
    ],
)
def test_equal_as_python_has_it_or_near_where_floats_are_expected(expected, got):
    assert accepts("evalplus", expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([1, 2], (1, 2)),
        (1.0, 1.00001),
        (1, 1.0000001),
        (1.5, Opaque("float64")),
        ([0.5], [0.5, 0.5]),
        ([0.5], (0.5 + 1e-9,)),
        ({"a": 0.5}, {"a": 0.5 + 1e-9}),
        (10**17, 10**17 + 1),
        (INF, 1e308),
        (NAN, NAN + 1),
        (None, 0),
    ],
)
def test_other_types_and_what_is_further_off_are_not(expected, got):
    assert not accepts("evalplus", expected, got)


@pytest.mark.parametrize(
    ("expected", "got", "right"),
    [
        (5, 5.0001, False),  # of another type
        ({"a": 1.0}, {"a": 1.00001}, False),
        ([1.0, [2.0]], [1.00001, [2.00001]], True),
        ([1.0, [2.0]], [1.00001, [2.1]], False),
        (1 + 2j, 1.00001 + 2j, True),
        (100, 100, True),
    ],
)
def test_a_problems_tolerance_is_for_all_numbers_of_the_same_type(expected, got, right):
    assert accepts("evalplus", expected, got, atol=1e-4) is right


@pytest.mark.parametrize(
    ("rule", "expected", "got", "arguments", "right"),
    [
        ("evalplus_set", (1, 2), [2, 1, 1], (), True),
        ("evalplus_set", (1, 2), [2, 3], (), False),
        ("evalplus_set", [1, 2], 5, (), False),
        ("evalplus_not_none", True, Opaque("Match"), (), True),
        ("evalplus_not_none", True, None, (), False),
        ("evalplus_not_none", False, None, (), True),
        ("evalplus_not_none", False, False, (), True),
        ("evalplus_not_none", False, True, (), False),
        ("evalplus_any_value", True, None, (), True),
        ("evalplus_or_zero", 12, 0, (), True),
        ("evalplus_or_zero", 12, 11, (), False),
        ("evalplus_pyramid", 33, 35, (3, 4), True),
        ("evalplus_pyramid", 33, 34, (3, 4), False),
        ("evalplus_digits", 9, 3, (12, 120), False),
        ("evalplus_digits", 9, 4, (12, 120), True),
        ("evalplus_digits", 9, 1, (-1, 1), False),
        ("evalplus_root", 2.0, -2.0, ([-4, 0, 1],), True),
        ("evalplus_root", 2.0, 2.1, ([-4, 0, 1],), False),
        ("evalplus_root", 2.0, NAN, ([-4, 0, 1],), False),
        ("evalplus_root", 2.0, 1e300, ([-4, 0, 1],), False),
    ],
)
def test_problems_of_several_right_values(rule, expected, got, arguments, right):
    atol = 1e-4 if rule == "evalplus_root" else 0.0
    assert accepts(rule, expected, got, arguments, atol) is right


def test_no_rule_takes_what_a_program_made_up_for_an_answer():
    for name in VALUE_RULES:
        if name not in ("evalplus_any_value", "evalplus_not_none"):
            assert not accepts(name, 41, Opaque("AlwaysEqual"), ([-4, 0, 1],))


def test_a_rule_for_calls_needs_calls():
    problem = Problem.simple("?", tests=[Test(Stdin("1"), expected="1")], comparison="evalplus")
    with pytest.raises(DataError, match="comparison='evalplus' compares values of calls"):
        checked_tests(problem, public=False)
    calls = Problem.simple("?", tests=[Test(Call("f"), expected=1)], comparison="evalplus")
    assert len(checked_tests(calls, public=False)) == 1
