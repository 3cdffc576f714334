"""Which tests tell wrong programs from right ones, most telling first: an order, or the first k of it.

A test that rejects nothing costs an execution of every program and says nothing. Judging by fewer tests
makes reward cheaper, and easier to earn wrongly: how much is lost is measured, on programs that had no
part in the choice (`Discrimination.held_out`). Only training problems are shortened; who evaluates runs
all tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import orjson

from coding_model_project.data.problems import problem_line
from coding_model_project.errors import ConfigError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOrder:
    """Which of a problem's hidden tests to judge by, and in which order."""

    __test__ = False  # not a pytest class

    id: str
    tests: tuple[int, ...]
    """Numbers of hidden tests, from 0."""
    of: int
    """How many hidden tests the problem has."""
    version: str
    """A hash of these, so that an order is not applied to other tests."""


def additional_greedy(rejects: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """All tests, each next one the one that rejects most programs that none before it rejects.

    Once all programs are rejected, or what is left rejects none, a new round begins over all of them:
    the "additional" prioritization of Rothermel et al. 2001 ("Prioritizing test cases for regression
    testing"). Of the first k tests it guarantees 1 − 1/e of what the best k reject, as every greedy
    cover does. Ties go to the earlier test.

    Args:
        rejects: by test, the programs it rejects.
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
    """The programs that at least one of these tests rejects."""
    return {program for test in tests for program in rejects[test]}


def first_rejection(rejects: Sequence[frozenset[int]], order: Sequence[int], program: int) -> int:
    """How many executions of a program an early stop needs in this order."""
    return next((n for n, test in enumerate(order, 1) if program in rejects[test]), len(order))


def version(problem: Problem) -> str:
    """A hash of a problem's hidden tests."""
    bare = Problem(id="", split="", statement="", tests=problem.hidden_tests)
    return hashlib.blake2b(problem_line(bare), digest_size=8).hexdigest()


def write_orders(path: Path, orders: Iterable[TestOrder]) -> None:
    """Write orders, one a line, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(b"".join(orjson.dumps(asdict(order)) + b"\n" for order in orders))
    partial.replace(path)


def read_orders(path: str | Path) -> dict[str, TestOrder]:
    """Orders by problem.

    Raises:
        ConfigError: the file is missing or not of orders; names the line.
    """
    local = on_disk(path)
    if not local.is_file():
        raise ConfigError(f"--tests: {path}: no such file; `data select-tests` writes one")
    orders = {}
    for number, line in enumerate(local.read_bytes().splitlines(), 1):
        try:
            row = orjson.loads(line)
            orders[row["id"]] = TestOrder(**row | {"tests": tuple(row["tests"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"--tests: {path}:{number}: not an order of tests") from error
    return orders


def ordered(problems: Iterable[Problem], orders: Mapping[str, TestOrder]) -> list[Problem]:
    """Problems with only the hidden tests chosen, in their order; without an order they keep all.

    Raises:
        ConfigError: a problem's tests are not those that its order was made for.
    """
    return [_ordered(problem, orders.get(problem.id)) for problem in problems]


def _ordered(problem: Problem, order: TestOrder | None) -> Problem:
    if order is None:
        return problem
    hidden = problem.hidden_tests
    if version(problem) != order.version:
        raise ConfigError(
            f"--tests: {problem.id} has other tests than those the order was made for; make it again"
        )
    tests = (*problem.public_tests, *(hidden[n] for n in order.tests))
    return replace(problem, tests=tests, base_tests=None)  # the base tests are no longer the first
