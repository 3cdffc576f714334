"""Orders of tests by the wrong programs that they reject, most effective first, or the first k of one.

A test that rejects nothing costs an execution of every program without a benefit. Fewer tests make
rewards cheaper, but easier to earn wrongly. `Discrimination.held_out` measures that loss on programs that
were not used for the choice. Only training problems lose tests; evaluations run all of them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import orjson

from coding_model_project.concurrency import each
from coding_model_project.data.files import read_lines
from coding_model_project.data.problems import problem_line
from coding_model_project.data.quality.mutants import mutants
from coding_model_project.data.quality.preflight import with_mutant_limits
from coding_model_project.data.rates import NONE, Rate, Sums
from coding_model_project.errors import CheckerError, ConfigError, DataError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import GradedBy, Problem


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


# ── measurement, by running all programs on all tests ──────────────────────────────────────────────

_AT_ONCE = 16
"""Number of problems whose programs run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrimination(Sums):
    """The value of the chosen tests, for one problem or summed over several."""

    problems: int = 0
    tests: int = 0
    """Hidden tests of these problems."""
    chosen: int = 0
    undetected: int = 0
    """Programs that no test rejects: equivalent mutants, or faults that the tests miss."""
    kept: Rate = NONE
    """Rejections by the chosen tests, out of those by all tests."""
    held_out: Rate = NONE
    """Rejections by tests chosen for the other half of a problem's programs, as expected for new ones."""
    as_given: Rate = NONE
    """Rejections by the same number of tests in the data set's own order."""
    executions: int = 0
    """Number of executions of rejected programs on all tests."""
    stopped_as_given: int = 0
    """Number of executions with an early stop, in the data set's order."""
    stopped_ordered: int = 0
    """Number of executions with an early stop, in an order chosen for the other half of the programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The result for a data set."""

    orders: tuple[TestOrder, ...]
    total: Discrimination
    skipped: tuple[tuple[str, str], ...]
    """Problems that keep all tests in their order, with the reason."""
    seconds: float


async def select_tests(
    problems: Sequence[Problem],
    sandbox: Sandbox,
    *,
    k: int | None = None,
    mutants_per_problem: int = 10,
    progress: Callable[[], None] = lambda: None,
) -> Selection:
    """Order each problem's hidden tests by the programs that they reject, and keep the first k.

    Known-bad programs are the problem's own and mutants of its first gold solution. A problem whose gold
    solution is rejected is skipped, since its tests are unreliable.

    Args:
        k: the number of tests to keep. None keeps all in their new order, which does not change verdicts
            but lets an early stop come sooner.
        progress: a function called once per problem.

    Raises:
        SandboxError: the sandbox failed.
    """
    started = time.monotonic()
    # A program that times out would mostly do so on all tests, which count as passed from there.
    grader = ExecutionGrader(sandbox, stop_early=False, stop_at_limit=True)

    async def select(problem: Problem) -> tuple[TestOrder, Discrimination] | str:
        try:
            rejects = await _rejects(problem, grader, mutants_per_problem)
            return rejects if isinstance(rejects, str) else _selected(problem, *rejects, k)
        finally:
            progress()

    found = await each(problems, select, at_once=_AT_ONCE)
    done = [one for one in found if not isinstance(one, str)]
    pairs = zip(problems, found, strict=True)
    return Selection(
        orders=tuple(order for order, _ in done),
        total=Discrimination.summed([worth for _, worth in done]),
        skipped=tuple((problem.id, one) for problem, one in pairs if isinstance(one, str)),
        seconds=time.monotonic() - started,
    )


def _selected(
    problem: Problem, rejects: Sequence[frozenset[int]], n_programs: int, k: int | None
) -> tuple[TestOrder, Discrimination]:
    order = additional_greedy(rejects)
    n, k = len(rejects), min(k or len(rejects), len(rejects))
    detected = rejected_by(rejects, range(n))
    halves = [{p for p in detected if p % 2 == part} for part in (0, 1)]
    others = [additional_greedy([r & halves[1 - part] for r in rejects]) for part in (0, 1)]
    held_out = sum(
        len(rejected_by(rejects, other[:k]) & half)
        for half, other in zip(halves, others, strict=True)
    )
    worth = Discrimination(
        problems=1,
        tests=n,
        chosen=k,
        undetected=n_programs - len(detected),
        kept=Rate(hits=len(rejected_by(rejects, order[:k])), total=len(detected)),
        held_out=Rate(hits=held_out, total=len(detected)),
        as_given=Rate(hits=len(rejected_by(rejects, range(k))), total=len(detected)),
        executions=n * len(detected),
        stopped_as_given=sum(first_rejection(rejects, range(n), p) for p in detected),
        stopped_ordered=sum(
            first_rejection(rejects, other, program)
            for half, other in zip(halves, others, strict=True)
            for program in half
        ),
    )
    return TestOrder(id=problem.id, tests=order[:k], of=n, version=version(problem)), worth


async def _rejects(
    problem: Problem, grader: ExecutionGrader, n_mutants: int
) -> tuple[list[frozenset[int]], int] | str:
    """Return the programs that each test rejects and the number of programs, or a reason to skip it."""
    if not problem.gold or problem.graded_by is not GradedBy.tests or not problem.hidden_tests:
        return "no gold solution that runs" if problem.hidden_tests else "no hidden tests"
    try:
        gold = await grader.grade_code(problem, problem.gold[0])
        if not gold.passed:
            return "its gold solution is not accepted"
        limited = with_mutant_limits(problem, gold)
        programs = [(problem, code) for code in problem.bad]
        programs += [(limited, one.code) for one in islice(mutants(problem.gold[0]), n_mutants)]
        verdicts = [await grader.grade_code(*one) for one in programs]
    except (DataError, CheckerError) as error:
        return f"unusable: {error}"
    if not programs:
        return "no known-bad program"
    failed = [{n for n, one in enumerate(verdict.results) if one.error} for verdict in verdicts]
    tests = range(gold.n_tests)
    return [frozenset(p for p, of in enumerate(failed) if t in of) for t in tests], len(programs)
