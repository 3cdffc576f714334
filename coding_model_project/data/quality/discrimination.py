"""Measurement of the known-bad programs that each test rejects, by running all programs on all tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from coding_model_project.concurrency import each
from coding_model_project.data.quality.mutants import mutants
from coding_model_project.data.quality.preflight import mutant_limits
from coding_model_project.data.quality.rates import NONE, Rate, Sums
from coding_model_project.data.quality.test_order import (
    TestOrder,
    additional_greedy,
    first_rejection,
    rejected_by,
    version,
)
from coding_model_project.grading.execution import judge_execution, program_of
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import Execution, GradedBy, Limits, Problem, Status

AT_ONCE = 16
"""Number of problems whose programs run at once."""

MAX_TIMEOUTS = 2
"""Number of time-outs after which a program's remaining tests are skipped and count as passed."""


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

    async def select(problem: Problem) -> tuple[TestOrder, Discrimination] | str:
        try:
            rejects = await _rejects(problem, sandbox, mutants_per_problem)
            return rejects if isinstance(rejects, str) else _selected(problem, *rejects, k)
        finally:
            progress()

    found = await each(problems, select, at_once=AT_ONCE)
    done = [one for one in found if not isinstance(one, str)]
    pairs = zip(problems, found, strict=True)
    return Selection(
        orders=tuple(order for order, _ in done),
        total=sum((worth for _, worth in done), Discrimination()),
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
    problem: Problem, sandbox: Sandbox, n_mutants: int
) -> tuple[list[frozenset[int]], int] | str:
    """Return the programs that each test rejects and the number of programs, or a reason to skip it."""
    tests = problem.hidden_tests
    if not problem.gold or problem.graded_by is not GradedBy.tests or not tests:
        return "no gold solution that runs" if tests else "no hidden tests"
    gold = await _run(problem, problem.gold[0], problem.limits, sandbox)
    if len(gold) < len(tests) or any(_rejected(problem, n, e) for n, e in enumerate(gold)):
        return "its gold solution is not accepted"
    limits = mutant_limits(problem.limits, max(execution.cpu_s for execution in gold))
    programs = [(code, problem.limits) for code in problem.bad]
    programs += [(m.code, limits) for m in islice(mutants(problem.gold[0]), n_mutants)]
    if not programs:
        return "no known-bad program"
    ran = [await _run(problem, code, within, sandbox) for code, within in programs]
    rejects = [
        frozenset(p for p, row in enumerate(ran) if t < len(row) and _rejected(problem, t, row[t]))
        for t in range(len(tests))
    ]
    return rejects, len(programs)


async def _run(problem: Problem, code: str, limits: Limits, sandbox: Sandbox) -> list[Execution]:
    n_timeouts = 0

    def enough(_: int, execution: Execution) -> bool:
        nonlocal n_timeouts
        n_timeouts += execution.status in (Status.cpu_timeout, Status.wall_timeout)
        return n_timeouts >= MAX_TIMEOUTS

    program = program_of(problem, code)
    inputs = [test.input for test in problem.hidden_tests]
    return await sandbox.run(program, inputs, limits, stop_when=enough)


def _rejected(problem: Problem, number: int, execution: Execution) -> bool:
    """Return whether a test rejects a program; failures that a loaded machine may cause do not count."""
    if execution.status is Status.wall_timeout:
        return False
    test = problem.hidden_tests[number]
    return judge_execution(test, execution, problem).error is not None
