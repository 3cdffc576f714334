"""The inputs of tests, and the rules of right answers. Exported tasks carry this module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coding_model_project.grading.compare import Tolerance, same_output
from coding_model_project.grading.value_rules import value_rule
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
