"""The preflight of a data set: its gold solutions must pass, and its known-bad ones must fail.

Mutants of gold solutions are known bad if a plain run of the tests rejects them. Mutants that pass are
set aside, since they show nothing about the judge. A program that does nothing must fail too: tests that
accept it do not reach the program. A problem with any fault, or with verdicts that change
between repeats, is reported with the reasons and must not train. Faults that are visible without running
anything (`faults`) are reported first, and such problems are not judged.

Most sets take the answer of a maths problem from its solution. A solution that ends in the expected
answer is then compared with itself, so it counts neither as accepted nor as evidence.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coding_model_project.concurrency import each
from coding_model_project.data.quality.faults import Fault, faults
from coding_model_project.data.quality.idle import idle_program
from coding_model_project.data.quality.mutants import Mutant, mutants
from coding_model_project.data.quality.rates import NONE, Rate
from coding_model_project.data.quality.second_opinion import passes_plainly
from coding_model_project.errors import CheckerError, DataError
from coding_model_project.grading.base import CodeGrader
from coding_model_project.grading.checker import CHECKER
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.judge import GraderByProblem
from coding_model_project.grading.limiter import Limiter
from coding_model_project.grading.maths.final_answer import final_answer
from coding_model_project.grading.value_rules import VALUE_RULES
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import GradedBy, Limits, Problem, Verdict

MAX_TRIED = 40
"""Maximum number of mutants run per problem, in search of some that its tests reject."""

MIN_OPERATORS = 2
"""Minimum number of distinct operators among a problem's mutants, if it has that many."""

UNPROVEN = "no gold solution: nothing shows that it can be solved"
UNREACHED = "accepts a program that does nothing"
GOLD_REJECTED = "gold rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """The results of mutants."""

    judged: int = 0
    rejected: int = 0
    set_aside: int = 0
    """Mutants that passed the plain run: equivalent to the gold, or not detected by its tests."""
    problems: int = 0
    """Problems with at least one judged mutant."""
    with_two_operators: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The results for a data set's own solutions."""

    problems: int
    gold_accepted: int
    """Problems with gold solutions, all accepted."""
    bad_total: int
    """Known-bad programs, including mutants."""
    bad_rejected: int
    seconds: float
    """Wall-clock seconds of judging the gold solutions once."""
    complaints: tuple[str, ...]
    """A line per rejected gold solution, accepted known-bad one, flaky problem and unusable problem."""
    without_gold: int = 0
    gold: Rate = NONE
    """Accepted gold programs: the true positives."""
    bad: Rate = NONE
    """Rejected known-bad programs, including mutants: the true negatives."""
    mutation: Mutation = Mutation()
    flaky: tuple[str, ...] = ()
    """Ids of problems with a program that only some repeats accepted."""
    quarantined: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Ids of problems that must not train, with the reasons."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Number of problems by kind of `faults`; these were not judged."""
    compared_with_itself: int = 0
    """Maths problems whose solution ends in the expected answer, which is no evidence."""

    @property
    def passed(self) -> bool:
        return not self.complaints


@dataclass(slots=True)
class _Judged:
    """A program of a problem, with a verdict per repeat."""

    problem: Problem
    code: str
    verdicts: list[Verdict]

    @property
    def accepted(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def rejected(self) -> bool:
        return not any(verdict.passed for verdict in self.verdicts)


async def preflight(
    problems: Sequence[Problem],
    sandbox: Sandbox,
    *,
    found: Sequence[Sequence[Fault]] | None = None,
    max_concurrency: int = 16,
    mutants_per_problem: int = 0,
    repeats: int = 1,
    progress: Callable[[], None] | None = None,
) -> Preflight:
    """Judge gold solutions by all of a problem's tests, known-bad and idle ones by the hidden tests.

    Args:
        found: `faults` of these problems if they are a part of a set; None computes them.
        max_concurrency: the maximum number of programs in the sandbox at once.
        mutants_per_problem: the number of mutants of the first gold solution to judge as known bad.
        repeats: the number of times to judge each solution, to find verdicts that change.
        progress: a function called once per gold, known-bad and idle program and per problem's mutants.

    Raises:
        UngradableError: the sandbox failed. A problem with unusable data is quarantined instead.
    """
    limiter = Limiter(max_concurrency)
    execution = ExecutionGrader(sandbox, stop_early=True, limiter=limiter)
    async with GraderByProblem(execution, limiter=limiter) as grader:
        run = _Run(problems, sandbox, grader, limiter, progress)
        found = faults(problems) if found is None else found
        return await _preflight(run, problems, found, mutants_per_problem, repeats)


async def _preflight(
    run: _Run,
    problems: Sequence[Problem],
    found: Sequence[Sequence[Fault]],
    mutants_per_problem: int,
    repeats: int,
) -> Preflight:
    n_problems = len(problems)
    sound = [problem for problem, wrong in zip(problems, found, strict=True) if not wrong]
    for problem, wrong in zip(problems, found, strict=True):
        for what, detail in wrong:
            run.report(problem.id, f"{what}: {detail}")
        for _ in range(n_programs(problem) if wrong else 0):
            run.skip()
    problems = sound
    started = time.monotonic()
    everything = [_all_hidden(problem) for problem in problems]
    gold = await run.judge((p, code) for p in everything for code in p.gold)
    seconds = time.monotonic() - started
    idle = await run.judge(
        (p, program) for p in problems if (program := idle_program(p)) is not None
    )
    # That tests which reach no program accept a known-bad one too says nothing more.
    unreached = dict.fromkeys(judged.problem.id for judged in idle if judged.accepted)
    for problem in problems:
        for _ in problem.bad if problem.id in unreached else ():
            run.skip()
    reached = [p for p in problems if p.id not in unreached]
    bad = await run.judge((p, code) for p in reached for code in p.bad)
    mutated, mutation = await run.mutants(
        [judged for judged in gold if judged.problem.id not in unreached], mutants_per_problem
    )
    for _ in range(repeats - 1):
        await run.again([*gold, *bad])
    for judged in gold:
        if judged.rejected:
            run.complain(judged, GOLD_REJECTED, _why(judged.verdicts[0]))
    for problem_id in unreached:
        run.report(problem_id, f"{UNREACHED}: its tests do not reach the program")
    for what, programs in (("known-bad", bad), ("mutant", mutated)):
        for judged in programs:
            if judged.accepted:
                run.complain(judged, f"{what} accepted", f"{judged.code!r:.200}")
    changing = [judged for judged in [*gold, *bad] if not (judged.accepted or judged.rejected)]
    for judged in changing:
        run.complain(judged, "flaky", f"accepted in {_n_passed(judged)} of {repeats} repeats")
    unsound = {judged.problem.id for judged in gold if not judged.accepted} | run.unusable
    maths = {p.id for p in problems if _compared_with_itself(p) and p.id not in unsound}
    shown = [judged for judged in gold if judged.problem.id not in maths]
    # Problems with instructions need no gold solution.
    provable = [p for p in problems if p.graded_by is not GradedBy.instructions]
    unproven = {p.id: [UNPROVEN] for p in provable if not p.gold and p.id not in run.reasons}
    known_bad = [*bad, *mutated]
    return Preflight(
        problems=n_problems,
        gold_accepted=sum(bool(p.gold) and p.id not in unsound | maths for p in problems),
        bad_total=len(known_bad),
        bad_rejected=sum(judged.rejected for judged in known_bad),
        seconds=seconds,
        complaints=tuple(run.complaints),
        without_gold=sum(not problem.gold for problem in problems),
        gold=Rate.of(judged.accepted for judged in shown),
        bad=Rate.of(judged.rejected for judged in known_bad),
        mutation=mutation,
        flaky=tuple(dict.fromkeys(judged.problem.id for judged in changing)),
        quarantined=tuple((i, tuple(why)) for i, why in (run.reasons | unproven).items()),
        faults=Counter(what for wrong in found for what, _ in wrong),
        compared_with_itself=len(maths),
    )


def n_programs(problem: Problem) -> int:
    """Return the number of a problem's gold, known-bad and idle programs."""
    return len(problem.gold) + len(problem.bad) + (idle_program(problem) is not None)


class _Run:
    """The grader and the findings of a preflight."""

    def __init__(
        self,
        problems: Sequence[Problem],
        sandbox: Sandbox,
        grader: CodeGrader,
        limiter: Limiter,
        progress: Callable[[], None] | None,
    ) -> None:
        self._sandbox = sandbox
        self._grader, self._limiter = grader, limiter
        self._progress = progress or (lambda: None)
        self._original = {problem.id: problem for problem in problems}
        self.complaints: list[str] = []
        self.reasons: dict[str, list[str]] = defaultdict(list)
        self.unusable: set[str] = set()

    def complain(self, judged: _Judged, what: str, detail: str) -> None:
        self.report(judged.problem.id, f"{what}: {detail}")

    def report(self, problem_id: str, reason: str) -> None:
        if reason not in self.reasons[problem_id]:
            self.complaints.append(f"{problem_id}: {reason}")
            self.reasons[problem_id].append(reason)

    def skip(self) -> None:
        """Count a program that is not judged."""
        self._progress()

    async def judge(self, work: Iterable[tuple[Problem, str]]) -> list[_Judged]:
        """Judge programs once, except those of unusable problems."""
        done = await each(work, lambda one: self._judge(*one))
        return [judged for judged in done if judged is not None]

    async def again(self, work: Sequence[_Judged]) -> None:
        """Judge programs again."""
        verdicts = await each(work, lambda judged: self._verdict(judged.problem, judged.code))
        for judged, verdict in zip(work, verdicts, strict=True):
            judged.verdicts.append(verdict)

    async def mutants(self, gold: Sequence[_Judged], wanted: int) -> tuple[list[_Judged], Mutation]:
        """Judge mutants of each problem's first accepted gold solution.

        Problems with a checker are skipped, since there is no second opinion on several right outputs.
        """
        if not wanted:
            return [], Mutation()
        first: dict[str, _Judged] = {}
        for judged in gold:
            if judged.accepted and _mutable(judged.problem):
                first.setdefault(judged.problem.id, judged)
        found = await each(first.values(), lambda judged: self._mutants(judged, wanted))
        kept = [judged for mutated, _, _ in found for judged in mutated]
        return kept, Mutation(
            judged=len(kept),
            rejected=sum(judged.rejected for judged in kept),
            set_aside=sum(n_passing for _, n_passing, _ in found),
            problems=sum(bool(mutated) for mutated, _, _ in found),
            with_two_operators=sum(n_operators >= MIN_OPERATORS for _, _, n_operators in found),
        )

    async def _mutants(self, gold: _Judged, wanted: int) -> tuple[list[_Judged], int, int]:
        problem = self._original[gold.problem.id]
        slowest_s = max((result.cpu_s for result in gold.verdicts[0].results), default=0.0)
        limits = mutant_limits(problem.limits, slowest_s)
        # Twice the judge's limits: a mutant that times out here must not pass by the judge's grace.
        plain = replace(limits, cpu_s=2 * limits.cpu_s, wall_s=2 * limits.wall_s)
        kept: list[Mutant] = []
        n_passing = 0
        for mutant in mutants(gold.code):
            operators = {one.operator for one in kept}
            full = len(kept) >= wanted
            if (full and len(operators) >= MIN_OPERATORS) or len(kept) + n_passing >= MAX_TRIED:
                break
            if full and mutant.operator in operators:
                continue
            async with self._limiter.shared():
                passes = await passes_plainly(problem, mutant.code, self._sandbox, plain)
            if passes:
                n_passing += 1
            else:
                kept.append(mutant)
        limited = replace(problem, limits=limits)
        judged = []
        for mutant in kept:
            verdict = await self._verdict(limited, mutant.code)
            if verdict.passed and await self._by_order(problem, mutant.code, plain):
                n_passing += 1
            else:
                judged.append((mutant.operator, _Judged(problem, mutant.code, [verdict])))
        self._progress()
        return [one for _, one in judged], n_passing, len({operator for operator, _ in judged})

    async def _by_order(self, problem: Problem, code: str, limits: Limits) -> bool:
        """Return whether a mutant fails a plain run only by the order of a set's items."""
        async with self._limiter.shared():
            return await passes_plainly(problem, code, self._sandbox, limits, rebuilt=True)

    async def _judge(self, problem: Problem, code: str) -> _Judged | None:
        try:
            return _Judged(problem, code, [await self._verdict(problem, code)])
        except (DataError, CheckerError) as error:
            if problem.id not in self.unusable:
                self.unusable.add(problem.id)
                self.report(problem.id, f"unusable: {error}")
            return None
        finally:
            self._progress()

    async def _verdict(self, problem: Problem, code: str) -> Verdict:
        return await self._grader.grade_code(problem, code)


def _compared_with_itself(problem: Problem) -> bool:
    """Return whether the answer occurs literally in the problem's own solution."""
    found = [final_answer(solution) for solution in problem.gold]
    return problem.graded_by is GradedBy.math and any(
        one is not None and one.text == problem.answer for one in found
    )


def _mutable(problem: Problem) -> bool:
    """Return whether a second opinion supports the problem's comparison."""
    known = problem.comparison != CHECKER and problem.comparison not in VALUE_RULES
    return problem.graded_by is GradedBy.tests and known


def mutant_limits(limits: Limits, slowest_s: float) -> Limits:
    """Return limits for mutants: ten times the gold's slowest test, at least 1 s. Many never end."""
    cpu_s = min(limits.cpu_s, max(1.0, 10 * slowest_s))
    return replace(limits, cpu_s=cpu_s, wall_s=max(3 * cpu_s, limits.wall_s * cpu_s / limits.cpu_s))


def _all_hidden(problem: Problem) -> Problem:
    """Return the problem with its public tests turned into hidden ones."""
    return replace(problem, tests=tuple(replace(test, public=False) for test in problem.tests))


def _n_passed(judged: _Judged) -> int:
    return sum(verdict.passed for verdict in judged.verdicts)


def _why(verdict: Verdict) -> str:
    number, result = next(
        (i, result) for i, result in enumerate(verdict.results) if result.error is not None
    )
    detail = " ".join(result.detail.split())
    return f"test {number}: {result.error}: {detail[-200:]}"
