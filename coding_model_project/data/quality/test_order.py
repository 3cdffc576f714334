"""Orders of tests by the wrong programs that they reject, most effective first, or the first k of one.

A test that rejects nothing costs an execution of every program without a benefit. Fewer tests make
rewards cheaper, but easier to earn wrongly. `Discrimination.held_out` measures that loss on programs that
were not used for the choice. Only training problems lose tests; evaluations run all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from coding_model_project.data.json_files import read_lines
from coding_model_project.data.problems import problem_line
from coding_model_project.errors import ConfigError
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOrder:
    """The hidden tests of a problem to judge by, in their order."""

    __test__ = False  # not a pytest class

    id: str
    tests: tuple[int, ...]
    """Indices of hidden tests, from 0."""
    of: int
    """Number of hidden tests of the problem."""
    version: str
    """A hash of the hidden tests, so that an order is never applied to other tests."""


def additional_greedy(rejects: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """Order all tests greedily: the next test rejects the most programs that no earlier test rejects.

    When all programs are rejected, or the remaining tests reject no more, a new round begins over all
    programs. This is the "additional" prioritization of Rothermel et al. 2001 ("Prioritizing test cases
    for regression testing"). As for any greedy cover, the first k tests reject at least 1 − 1/e of the
    programs that the best k reject. Ties go to the earlier test.

    Args:
        rejects: the programs that each test rejects.
    """
    left = list(range(len(rejects)))
    order: list[int] = []
    covered: set[int] = set()
    while left:
        best = max(left, key=lambda test: (len(rejects[test] - covered), -test))
        if covered and not rejects[best] - covered and any(rejects[test] for test in left):
            covered = set()
            continue
        covered |= rejects[best]
        order.append(best)
        left.remove(best)
    return tuple(order)


def rejected_by(rejects: Sequence[frozenset[int]], tests: Iterable[int]) -> set[int]:
    """Return the programs that at least one of these tests rejects."""
    return {program for test in tests for program in rejects[test]}


def first_rejection(rejects: Sequence[frozenset[int]], order: Sequence[int], program: int) -> int:
    """Return the number of executions of a program until an early stop in this order."""
    return next((n for n, test in enumerate(order, 1) if program in rejects[test]), len(order))


def version(problem: Problem) -> str:
    """Return a hash of a problem's hidden tests."""
    bare = Problem(id="", split="", statement="", tests=problem.hidden_tests)
    return hashlib.blake2b(problem_line(bare), digest_size=8).hexdigest()


def read_orders(path: str | Path) -> dict[str, TestOrder]:
    """Read orders, by problem.

    Raises:
        ConfigError: see `read_lines`.
    """

    def order(line: str) -> TestOrder:
        row = orjson.loads(line)
        return TestOrder(**row | {"tests": tuple(row["tests"])})

    orders = read_lines(
        path, order, option="--tests", expected="an order of tests", command="data select-tests"
    )
    return {one.id: one for one in orders}


def ordered(problem: Problem, order: TestOrder | None) -> Problem:
    """Return a problem with its chosen hidden tests in their order, or with all without an order.

    Raises:
        ConfigError: its tests have changed since the order was made.
    """
    if order is None:
        return problem
    hidden = problem.hidden_tests
    if version(problem) != order.version:
        raise ConfigError(
            f"--tests: the tests of {problem.id} have changed since the order was made; run `data "
            "select-tests` again"
        )
    tests = (*problem.public_tests, *(hidden[n] for n in order.tests))
    return replace(problem, tests=tests, base_tests=None)  # the base tests are no longer the first
