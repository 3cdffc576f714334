"""Comparison of values by EvalPlus's rules, with its tolerance and problems with several answers."""

import math

import pytest

from coding_model_project.codec import Opaque
from coding_model_project.errors import DataError
from coding_model_project.grading.compare import Tolerance
from coding_model_project.grading.execution import checked_tests
from coding_model_project.grading.value_rules import VALUE_RULES, value_rule
from coding_model_project.types import Call, Problem, Stdin, Test
from tests.tables import tables

LITERALS = {"inf": math.inf, "nan": math.nan, "Opaque": Opaque}


def accepts(rule, expected, got, arguments=(), atol=0.0):
    return value_rule(rule)(arguments, expected, got, Tolerance(atol=atol, rtol=1e-7))


@pytest.mark.parametrize(
    ("rule", "expected", "got", "arguments", "atol", "right"), tables("values")["rules"]
)
def test_values_by_evalplus_rules(rule, expected, got, arguments, atol, right):
    expected, got, arguments = (eval(text, LITERALS) for text in (expected, got, arguments))
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
