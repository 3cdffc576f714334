"""The preflight of a data set: its gold solutions must pass, and its known-bad ones must fail.

Mutants of gold solutions are known bad if a plain run of the tests rejects them. Mutants that pass are
set aside, since they show nothing about the judge. A program that does nothing must fail too: tests that
accept it do not reach the program. A problem with any fault, or with verdicts that change
between repeats, is reported with the reasons and must not train. Faults that are visible without running
anything (`faults`) are reported first, and such problems are not judged.

Most sets take the answer of a maths problem from its solution. A solution that ends in the expected
answer is then compared with itself, so it counts neither as accepted nor as evidence.

Each problem is checked on its own, so that results can be stored and nodes can share the work.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from coding_model_project.concurrency import each
from coding_model_project.data.quality.mutants import (
    Operator,
    idle_program,
    mutants,
    passes_plainly,
)
from coding_model_project.data.rates import NONE, Rate, Sums
from coding_model_project.errors import CheckerError, DataError, SandboxError
from coding_model_project.grading.base import CodeGrader, TaskGraders
from coding_model_project.grading.cache import problem_digest
from coding_model_project.grading.checker import CHECKER
from coding_model_project.grading.compare import VALUE_RULES
from coding_model_project.grading.execution import ExecutionGrader, checked_tests
from coding_model_project.grading.judge import GraderByProblem
from coding_model_project.grading.kinds import KINDS, Parts
from coding_model_project.grading.maths.final_answer import final_answer
from coding_model_project.grading.retries import Limiter, limiter_of
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import GradedBy, Limits, Problem, Verdict

RANGES = {
    "cpu_s": (0.01, 600.0),
    "wall_s": (0.01, 3600.0),
    "memory_mb": (8, 65_536),
    "output_kb": (1, 1_048_576),
}
"""Plausible range of each limit; a value outside has a wrong unit or is a mistake."""

Fault = tuple[str, str]
"""The kind of a fault and its detail."""


def faults(problems: Sequence[Problem]) -> list[list[Fault]]:
    """Return the faults of each problem, in the order of the problems."""
    times = Counter(problem.id for problem in problems)
    return [list(_faults(problem, times[problem.id])) for problem in problems]


def _faults(problem: Problem, times: int) -> Iterator[Fault]:
    if not problem.id.strip():
        yield "empty id", 'each problem needs its own id, such as "mine/1"'
    if times > 1:
        yield "duplicate id", f"{times} problems have it; rewards identify a problem by its id"
    if not problem.statement.strip():
        yield "empty statement", "the prompt would be empty"
    yield from ungradable(problem)
    given = [(name, getattr(problem.limits, name), *ends) for name, ends in RANGES.items()]
    wrong = [f"{n}={v:g}, expected {a:g} to {b:g}" for n, v, a, b in given if not a <= v <= b]
    if wrong:
        yield "absurd limits", ", ".join(wrong)


def ungradable(problem: Problem) -> Iterator[Fault]:
    """Yield the fault for which no program gets a verdict, if the problem has one."""
    if problem.graded_by is not GradedBy.tests:
        return
    if not problem.hidden_tests:
        yield "no hidden tests", "only hidden tests earn reward; remove public: true from some"
        return
    try:
        checked_tests(problem, public=False)
    except DataError as error:
        yield "unusable", str(error).removeprefix(f"problem {problem.id}: ")


AT_ONCE = 32
"""Number of problems checked at once on this machine."""

MAX_TRIED = 40
"""Maximum number of mutants run per problem, in search of some that its tests reject."""

MIN_OPERATORS = 2
"""Minimum number of distinct operators among a problem's mutants, if it has that many."""

_MAX_PROGRAMS = 16
"""Maximum number of programs in the sandbox at once."""

_MOST_FAILURES = 3
"""Number of failures of the sandbox after which no more problems are checked."""

UNPROVEN = "no gold solution: nothing shows that it can be solved"
UNREACHED = "accepts a program that does nothing"
GOLD_REJECTED = "gold rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation(Sums):
    """The results of mutants."""

    judged: int = 0
    rejected: int = 0
    set_aside: int = 0
    """Mutants that passed the plain run: equivalent to the gold, or not detected by its tests."""
    problems: int = 0
    """Problems with at least one judged mutant."""
    with_two_operators: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight(Sums):
    """The results for the own solutions of one or more problems."""

    problems: int = 0
    gold_accepted: int = 0
    """Problems with gold solutions, all accepted."""
    without_gold: int = 0
    gold: Rate = NONE
    """Accepted gold programs: the true positives."""
    bad: Rate = NONE
    """Rejected known-bad programs, including mutants: the true negatives."""
    mutation: Mutation = Mutation()
    flaky: tuple[str, ...] = ()
    """Ids of problems with a program that only some repeats accepted."""
    reasons: tuple[tuple[str, str], ...] = ()
    """Ids of problems that must not train, each with a reason."""
    faults: tuple[str, ...] = ()
    """The kinds of `faults` of problems; these were not judged."""
    compared_with_itself: int = 0
    """Maths problems whose solution ends in the expected answer, which is no evidence."""

    @property
    def quarantined(self) -> dict[str, tuple[str, ...]]:
        """All reasons of each problem that must not train."""
        found: dict[str, dict[str, None]] = {}
        for name, reason in self.reasons:
            found.setdefault(name, {})[reason] = None
        return {name: tuple(reasons) for name, reasons in found.items()}

    @property
    def complaints(self) -> tuple[str, ...]:
        """A line per rejected gold solution, accepted known-bad one, flaky and unusable problem."""
        lines = (f"{name}: {reason}" for name, reason in self.reasons if reason != UNPROVEN)
        return tuple(dict.fromkeys(lines))

    @property
    def passed(self) -> bool:
        return not self.complaints


@dataclass(slots=True)
class _Judged:
    """A program with a verdict per repeat."""

    code: str
    verdicts: list[Verdict]

    @property
    def accepted(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def rejected(self) -> bool:
        return not any(verdict.passed for verdict in self.verdicts)


Check = Callable[[Problem, Sequence[Fault]], Awaitable[Preflight]]
"""A function that checks a problem with these `faults`; raises SandboxError if it cannot."""


async def check_all(
    problems: Sequence[Problem],
    check: Check,
    *,
    at_once: int = AT_ONCE,
    progress: Callable[[], object] = lambda: None,
) -> Preflight:
    """Check all problems of a set, and add the results.

    Args:
        progress: a function called once per problem.

    Raises:
        SandboxError: some problems could not be checked; the others were, except in an outage.
    """
    failures: list[SandboxError] = []

    async def one(given: tuple[Problem, Sequence[Fault]]) -> Preflight | None:
        if len(failures) >= _MOST_FAILURES:
            return None
        try:
            return await check(*given)
        except SandboxError as error:
            failures.append(error)
            return None
        finally:
            progress()

    found = await each(zip(problems, faults(problems), strict=True), one, at_once=at_once)
    done = [result for result in found if result is not None]
    if failures:
        n_left = len(problems) - len(done)
        raise SandboxError(
            f"{n_left} of {len(problems)} problems could not be checked ({failures[0]})"
        )
    return Preflight.summed(done)


def result_key(problem: Problem, found: Sequence[Fault], settings: str) -> str:
    """Return a digest of everything that a problem's result depends on.

    Args:
        settings: the judge and the options of the check.
    """
    own = repr((settings, list(found), problem.gold, problem.bad))
    return hashlib.sha256(problem_digest(problem) + own.encode()).hexdigest()


@asynccontextmanager
async def open_checker(
    sandbox: Sandbox, tasks: TaskGraders | None = None
) -> AsyncIterator[Checker]:
    """Open a checker for a started sandbox.

    Args:
        tasks: see `grading.kinds.Parts`.
    """
    limiter = limiter_of(sandbox, _MAX_PROGRAMS)
    execution = ExecutionGrader(sandbox, stop_early=True, limiter=limiter)
    parts = Parts(execution=execution, limiter=limiter, tasks=tasks)
    async with GraderByProblem(parts) as grader:
        yield Checker(sandbox, grader, limiter)


class Checker:
    """A judge of problems' own programs."""

    def __init__(self, sandbox: Sandbox, grader: CodeGrader, limiter: Limiter) -> None:
        self._sandbox, self._grader, self._limiter = sandbox, grader, limiter

    async def check(
        self,
        problem: Problem,
        found: Sequence[Fault] = (),
        *,
        mutants_per_problem: int = 0,
        repeats: int = 1,
    ) -> Preflight:
        """Judge gold solutions by all of a problem's tests, known-bad and idle ones by the hidden tests.

        Args:
            found: the problem's `faults`; with any, nothing is judged.
            mutants_per_problem: the number of mutants of the first accepted gold solution to judge as
                known bad.
            repeats: the number of times to judge each solution, to find verdicts that change.

        Raises:
            SandboxError: the sandbox failed.
        """
        if not found:
            try:
                return await self._checked(problem, mutants_per_problem, repeats)
            except (DataError, CheckerError) as error:
                return _unfit(problem, [f"unusable: {error}"])
        result = _unfit(problem, [f"{what}: {detail}" for what, detail in found])
        return replace(result, faults=tuple(what for what, _ in found))

    async def _checked(self, problem: Problem, n_mutants: int, repeats: int) -> Preflight:
        hidden = (replace(test, public=False) for test in problem.tests)
        everything = replace(problem, tests=tuple(hidden))
        gold = await self._judged(everything, problem.gold)
        idle = idle_program(problem)
        reached = idle is None or not (await self._verdict(problem, idle)).passed
        # That tests which reach no program accept a known-bad one too says nothing more.
        bad = await self._judged(problem, problem.bad if reached else ())
        mutated, mutation = [], Mutation()
        right = next((one for one in gold if one.accepted), None)
        if n_mutants and reached and right is not None and _mutable(problem):
            mutated, mutation = await self._mutants(problem, right, n_mutants)
        for _ in range(repeats - 1):
            await each(gold, partial(self._again, everything))
            await each(bad, partial(self._again, problem))
        changing = [one for one in (*gold, *bad) if not (one.accepted or one.rejected)]
        reasons = [f"{GOLD_REJECTED}: {_why(one.verdicts[0])}" for one in gold if one.rejected]
        if not reached:
            reasons.append(f"{UNREACHED}: its tests do not reach the program")
        for what, programs in (("known-bad", bad), ("mutant", mutated)):
            reasons += [f"{what} accepted: {one.code!r:.200}" for one in programs if one.accepted]
        for one in changing:
            n_passed = sum(verdict.passed for verdict in one.verdicts)
            reasons.append(f"flaky: accepted in {n_passed} of {repeats} repeats")
        if not (gold or reasons) and KINDS[problem.graded_by].needs_gold:
            reasons.append(UNPROVEN)
        sound = bool(gold) and all(one.accepted for one in gold)
        # An answer that its own solution states is compared with itself.
        answers = map(final_answer, problem.gold if problem.graded_by is GradedBy.math else ())
        shows_nothing = sound and any(one and one.text == problem.answer for one in answers)
        return replace(
            _unfit(problem, reasons),
            gold_accepted=int(sound and not shows_nothing),
            gold=NONE if shows_nothing else Rate.of(one.accepted for one in gold),
            bad=Rate.of(one.rejected for one in (*bad, *mutated)),
            mutation=mutation,
            flaky=(problem.id,) if changing else (),
            compared_with_itself=int(shows_nothing),
        )

    async def _mutants(
        self, problem: Problem, gold: _Judged, wanted: int
    ) -> tuple[list[_Judged], Mutation]:
        """Judge mutants of a gold solution that a plain run of the tests rejects."""
        limited = with_mutant_limits(problem, gold.verdicts[0])
        limits = limited.limits
        # Twice the judge's limits: a mutant that times out here must not pass by the judge's grace.
        plain = replace(limits, cpu_s=2 * limits.cpu_s, wall_s=2 * limits.wall_s)
        kept: list[tuple[Operator, _Judged]] = []
        n_passing = 0
        for mutant in mutants(gold.code):
            operators = {operator for operator, _ in kept}
            full = len(kept) >= wanted
            if (full and len(operators) >= MIN_OPERATORS) or len(kept) + n_passing >= MAX_TRIED:
                break
            if full and mutant.operator in operators:
                continue
            if await self._passes(problem, mutant.code, plain):
                n_passing += 1
                continue
            verdict = await self._verdict(limited, mutant.code)
            # Whether it failed only by the order of a set's items.
            if verdict.passed and await self._passes(problem, mutant.code, plain, rebuilt=True):
                n_passing += 1
            else:
                kept.append((mutant.operator, _Judged(mutant.code, [verdict])))
        judged = [one for _, one in kept]
        return judged, Mutation(
            judged=len(judged),
            rejected=sum(one.rejected for one in judged),
            set_aside=n_passing,
            problems=int(bool(judged)),
            with_two_operators=int(len({operator for operator, _ in kept}) >= MIN_OPERATORS),
        )

    async def _passes(
        self, problem: Problem, code: str, limits: Limits, *, rebuilt: bool = False
    ) -> bool:
        async with self._limiter.shared():
            return await passes_plainly(problem, code, self._sandbox, limits, rebuilt=rebuilt)

    async def _judged(self, problem: Problem, programs: Iterable[str]) -> list[_Judged]:
        judged = [_Judged(code, []) for code in programs]
        await each(judged, partial(self._again, problem))
        return judged

    async def _again(self, problem: Problem, judged: _Judged) -> None:
        judged.verdicts.append(await self._verdict(problem, judged.code))

    async def _verdict(self, problem: Problem, code: str) -> Verdict:
        return await self._grader.grade_code(problem, code)


def _unfit(problem: Problem, reasons: Iterable[str]) -> Preflight:
    """Return the result of a problem that must not train for these reasons, if there are any."""
    return Preflight(
        problems=1,
        without_gold=int(not problem.gold),
        reasons=tuple((problem.id, reason) for reason in dict.fromkeys(reasons)),
    )


def _mutable(problem: Problem) -> bool:
    """Return whether a second opinion supports the problem's comparison.

    It does not with a checker, since several outputs are right.
    """
    known = problem.comparison != CHECKER and problem.comparison not in VALUE_RULES
    return problem.graded_by is GradedBy.tests and known


def with_mutant_limits(problem: Problem, gold: Verdict) -> Problem:
    """Return a problem with limits for mutants, many of which never end.

    These are ten times the gold's slowest test, at least 1 s.
    """
    limits, slowest_s = problem.limits, max((one.cpu_s for one in gold.results), default=0.0)
    cpu_s = min(limits.cpu_s, max(1.0, 10 * slowest_s))
    wall_s = max(3 * cpu_s, limits.wall_s * cpu_s / limits.cpu_s)
    return replace(problem, limits=replace(limits, cpu_s=cpu_s, wall_s=wall_s))


def _why(verdict: Verdict) -> str:
    number, result = next(
        (i, result) for i, result in enumerate(verdict.results) if result.error is not None
    )
    detail = " ".join(result.detail.split())
    return f"test {number}: {result.error}: {detail[-200:]}"
