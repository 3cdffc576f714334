"""Comparison is stricter than common judges, and lenient only where a rule says so."""

import math
import re
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project import codec
from coding_model_project.errors import DataError
from coding_model_project.grading.compare import (
    VALUE_RULES,
    Tolerance,
    same_output,
    same_value,
    value_rule,
)
from coding_model_project.grading.execution import checked_tests
from coding_model_project.types import Call, Opaque, Problem, Stdin, Test
from tests.strategies import PLAIN
from tests.tables import tables

CASES = tables("outputs")

MODES = ["tokens", "lines", "exact"]
WORDS = st.lists(
    st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=8), max_size=8
)
LOOP: list = []
LOOP.append(LOOP)


@given(WORDS, st.sampled_from(MODES))
def test_output_equals_itself(words, mode):
    text = " ".join(words)
    assert same_output(text, text, mode)
    assert same_output(text + "\n", text, mode)


@given(WORDS.filter(bool), st.integers(0), st.text("xyz", min_size=1, max_size=3))
def test_one_changed_token_is_wrong(words, at, more):
    changed = [*words]
    changed[at % len(words)] += more
    for mode in MODES:
        assert not same_output(" ".join(words), " ".join(changed), mode)


@given(WORDS.filter(bool))
def test_what_is_cut_short_or_too_long_is_wrong(words):
    text = " ".join(words)
    for mode in MODES:
        assert not same_output(text, " ".join(words[:-1]), mode)
        assert not same_output(text, text + " 1", mode)


@pytest.mark.parametrize(("expected", "got", "same"), CASES["tokens"])
def test_tokens(expected, got, same):
    """Pairs beyond those of the page's table (below), as in the next tests."""
    assert same_output(expected, got, "tokens") is same


@pytest.mark.parametrize(("mode", "got", "same"), CASES["lines"])
def test_lines_and_exact(mode, got, same):
    assert same_output("a b\nc", got, mode) is same


@given(PLAIN)
def test_a_value_equals_itself(value):
    assert same_value(value, value)
    assert same_value([value], (value,))


@given(PLAIN)
def test_a_value_differs_from_one_around_it_and_from_what_is_opaque(value):
    assert not same_value(value, [value])
    assert not same_value(value, Opaque("Sneaky"))
    assert not same_value([value], [Opaque("Sneaky")])


@pytest.mark.parametrize(("expected", "got", "same"), tables("values")["values"])
def test_values(expected, got, same):
    expected, got = (eval(text, {"inf": math.inf, "nan": math.nan}) for text in (expected, got))
    assert same_value(expected, got) is same


def test_a_value_that_holds_itself_is_unequal():
    assert not same_value(LOOP, [LOOP])
    assert not same_value(LOOP, [])


@given(st.floats(-1e9, 1e9), st.floats(0, 10), st.floats(0, 0.5), st.floats(-20, 20))
def test_a_tolerance_is_the_same_wherever_a_float_stands(expected, atol, rtol, by):
    tolerance = Tolerance(atol=atol, rtol=rtol)
    got = expected + by
    near = abs(got - expected) <= max(atol, rtol * abs(expected))
    assert same_value(expected, got, tolerance) is near
    assert same_value({"a": [(expected, 1j)]}, {"a": [(got, 1j)]}, tolerance) is near
    written = repr(expected)
    assert same_output(f"x {written} 1", f"x\n{got!r}  1\n", "tokens", tolerance) is near
    assert same_output(written, repr(got), "lines", tolerance) is (written == repr(got))


def test_without_a_tolerance_floats_are_exact():
    exact = Tolerance(atol=0, rtol=0)
    assert same_value(0.3, 0.3, exact)
    assert not same_value(0.3, 0.1 + 0.2, exact)
    assert same_output("2.0", "2", "tokens", exact)
    assert not same_output("0.3", "0.30000000000000004", "tokens", exact)
    assert same_value(2.0, 3.0, Tolerance(atol=1, rtol=0.5))
    assert not same_value(2.0, 3.5, Tolerance(atol=1, rtol=0.5)), "the larger one, not the sum"


PAGE = Path(__file__).parents[3] / "docs" / "grading.md"
_ROW = re.compile(r"\| `(?P<expected>.+?)` \| `(?P<got>.+?)` \| (?P<same>yes|no) \|")
_PART = re.compile(r"\| \*\*(?:values of calls|standard output, `(?P<mode>\w+)`)\*\* \|")


def rows():
    mode = None
    for line in PAGE.read_text().splitlines():
        if part := _PART.match(line):
            mode = part["mode"] or "value"
        if row := _ROW.match(line):
            yield pytest.param(mode, *row.groups(), id=f"{mode}: {row['expected']} {row['got']}")


def python(text):
    return eval(text, {"nan": math.nan, "inf": math.inf, "numpy": numpy})


@pytest.mark.parametrize(("mode", "expected", "got", "same"), rows())
def test_a_pair_is_as_the_page_says(mode, expected, got, same):
    expected, got = python(expected), python(got)
    if mode == "value":
        crossed = codec.loads(codec.dumps(got))  # as it comes from the sandbox
        assert same_value(expected, crossed) is (same == "yes")
    else:
        assert same_output(expected, got, mode) is (same == "yes")


def test_the_page_has_all_parts():
    modes = [row.values[0] for row in rows()]
    assert {mode: modes.count(mode) > 2 for mode in modes} == dict.fromkeys(
        ["value", "tokens", "lines", "codecontests", "exact"], True
    )
    assert len(modes) > 80


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
