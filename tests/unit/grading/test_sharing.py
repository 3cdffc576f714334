"""The inputs of a problem's tests, and those that may not share a process."""

import pytest

from coding_model_project.grading.sharing import inputs_of
from coding_model_project.types import Asserts, Call, Isolation, Stdin, Test


def calls(*pairs):
    return [Test(Call("f", args), expected=expected) for args, expected in pairs]


def apart(*pairs):
    return [given.apart for given in inputs_of(calls(*pairs), Isolation.per_test)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (([3, 1, 2],), [3, 1, 2]),
        (([[3, 1], [2, 5]],), [2, 5]),
        ((3, (1, 2)), [1, 2]),  # a tuple where a list is expected may be near enough
        (({"key": "value"},), "value"),
        (({"key": "value"},), "key"),
        (("some text",), "me te"),
        ((b"bytes",), b"yte"),
        ((17,), 17.0),
        ((2.5,), 2.5),
        (({11, 12},), {12, 11}),
        (({1: [2, 3]},), {1: (2, 3)}),
        (("9 2345 7",), 2345),
        ((12.5,), "12.5"),
        (([0, 11, 12, 3],), [11, 12]),
        (("11 12",), [11, 12]),
        (([11, 12],), "11 12"),
        (([True, False],), [1, 0]),
        ((12.0000001,), 12.0),
        pytest.param(([10**5000],), 10**5000, id="more digits than Python prints"),
        ((0.3333333,), 1 / 3),
        (([30, 10, 20],), {10, 20, 30}),
        (([31, 12, 20],), [20, 12, 31]),
        (("aa,bb",), ["aa", "bb"]),
    ],
)
def test_a_process_that_was_given_the_answer_is_not_asked(given, expected):
    assert apart((given, 100), ((1,), expected)) == [False, True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((17,), 18),
        ((117,), 17),
        (([1, 12],), [1, 1]),
        (("text",), "tex t"),
        (([True, None, 1, "a", ""],), True),
        ((7,), 7),
        (("a",), "a"),
        (([],), []),
    ],
)
def test_what_was_not_given_or_is_guessed_changes_nothing(given, expected):
    assert apart((given, 100), ((1,), expected)) == [False, False]


def test_a_new_process_knows_nothing_of_those_before():
    assert apart(((17,), 100), ((1,), 17), ((2,), 17), ((3,), 100)) == [False, True, False, False]
    assert apart(((17,), 100), ((19,), 17), ((2,), 19)) == [False, True, True]
    assert apart(((17,), 17), ((17,), 17)) == [False, True]


@pytest.mark.parametrize(
    ("given", "expected", "is_apart"),
    [
        ("5\n1 2 3\n", "1 2\n3", True),
        ("5\n1 2 3\n", "5 1", True),
        ("5\n1 2 3\n", "2 1", False),
        ("1000 77", "1000", True),
        ("10001 77", "1000", True),
        ("10001 77", "1001", False),
        ("0.5000", "0.5", False),
        ("12.5000", "12.5", True),
        ("[10, 20, 30]", "10 20 30", True),
        ("HELLO", "hello", True),
        ("a concatenation", "cat\n", False),
        ("a concatenation", "nation\n", True),
        ("12 YES", "12", False),
        ("12 YES", "YES", False),
        ("12 YES", "", False),
    ],
)
def test_a_process_that_was_given_an_output_is_not_asked_for_it(given, expected, is_apart):
    tests = [Test(Stdin(given), expected="none"), Test(Stdin("1"), expected=expected)]
    assert [one.apart for one in inputs_of(tests, Isolation.per_test)] == [False, is_apart]


def test_a_process_is_not_given_more_than_can_be_looked_through():
    tests = [Test(Stdin(f"{n} " * 200_000), expected="none") for n in (1, 2, 3, 4)]
    found = [one.apart for one in inputs_of(tests, Isolation.per_test)]
    assert found == [False, False, False, True]


def test_asserts_continue_where_the_problem_shares_their_state():
    tests = [
        Test(Asserts("assert f()")),
        Test(Asserts("assert f()")),
        Test(Stdin("1"), expected="1"),
    ]
    tests.append(tests[0])
    shared = inputs_of(tests, Isolation.shared)
    assert [getattr(one, "continues", None) for one in shared] == [False, True, None, False]
    apart = inputs_of(tests, Isolation.per_test)
    assert [getattr(one, "continues", None) for one in apart] == [False, False, None, False]
