"""The generated functions with MBPP's form of tests."""

from __future__ import annotations

from dataclasses import replace

from coding_model_project.synthetic.tinycode.proof import outcomes
from coding_model_project.types import Asserts, Call, Problem, Test


def in_asserts(problem: Problem) -> Problem:
    """Convert a function's tests to independent assertions; statement and id stay the same.

    `==` accepts 2.0 for 2, so a known-bad program that fails only by that is removed from `bad`.
    """
    calls = [(_call(test), test) for test in problem.tests]
    tests = tuple(
        Test(input=Asserts(source=_line(call, test), entry_point=call.function), public=test.public)
        for call, test in calls
    )
    hidden = [(call.args[0], test.expected) for call, test in calls if not test.public]
    given, expected = (tuple(values) for values in zip(*hidden, strict=True))
    bad = tuple(source for source in problem.bad if outcomes(source, given) != list(expected))
    return replace(problem, tests=tests, bad=bad)


def _call(test: Test) -> Call:
    assert isinstance(test.input, Call)
    return test.input


def _line(call: Call, test: Test) -> str:
    return f"assert {call.function}({', '.join(map(repr, call.args))}) == {test.expected!r}\n"
