"""Equivalent programs of one problem count as one."""

import pytest

from coding_model_project.data.training.samples import normal_form
from tests.tables import tables

CASES = tables("copies")

ADD = "def f(a):\n    return a + 1"


@pytest.mark.parametrize(("one", "other"), CASES["same"])
def test_names_of_variables_comments_and_layout_do_not_tell_programs_apart(one, other):
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(("one", "other"), CASES["different"])
def test_what_may_do_something_else_is_another_program(one, other):
    assert normal_form(one) != normal_form(other)


def test_code_that_does_not_parse_and_other_languages_differ_in_more_than_line_ends():
    assert normal_form("def f(:\n\n    x  ") == normal_form("def f(:\n    x")
    assert normal_form("int x;  \n\nint y;", "cpp") == normal_form("int x;\nint y;", "cpp")
    assert normal_form('puts("a b");', "cpp") != normal_form('puts("a  b");', "cpp")
