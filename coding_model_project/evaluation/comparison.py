"""Paired differences between sides (second minus first): scores, error types and budgets.

A side is an evaluation, or several that differ only in their seed.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.intervals import (
    detectable,
    hierarchical_interval,
    holm,
    least_changes,
    mcnemar,
    paired_test,
    side_interval,
    welch,
)
from coding_model_project.evaluation.results import RUN_INFO, Evaluation, Result, read_evaluation
from coding_model_project.evaluation.scores import budgets, first_accepted_costs, problem_rate
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.runs.resuming import differences, listed
from coding_model_project.types import ERROR_GROUPS, ErrorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A model or method, evaluated with one or more seeds."""

    name: str
    seeds: tuple[Evaluation, ...]


def read_side(word: str) -> Side:
    """Read a side from `[NAME=]FOLDER[,FOLDER...]`, where a folder may be a glob.

    Raises:
        ConfigError: no folder matches.
        DataError: a folder's evaluation is damaged.
    """
    name, equals, pattern = word.partition("=")
    if not equals or _folders(word.split(",")[0]):  # names of a sweep's folders contain =
        name, pattern = "", word
    folders = _folders(pattern)
    if not folders:
        raise ConfigError(f"{word}: no matching evaluation folder (with a {RUN_INFO})")
    default = folders[0].name if len(folders) == 1 else Path(pattern.split(",")[0]).name.strip("*_")
    return Side(
        name=name or default or pattern, seeds=tuple(read_evaluation(folder) for folder in folders)
    )


def _folders(pattern: str) -> list[Path]:
    """Return the distinct evaluation folders that match, in the given order."""
    matches = [sorted(glob.glob(one)) for one in pattern.split(",")]  # noqa: PTH207 - may be absolute
    paths = [Path(found) for several in matches for found in several]
    return list({path.resolve(): path for path in paths if (path / RUN_INFO).exists()}.values())


def unlike(sides: Sequence[Side]) -> str | None:
    """Return how two evaluations differ in their protocol or data, or None if none do."""
    first, *others = [one for side in sides for one in side.seeds]
    for other in others:
        if other.protocol_hash != first.protocol_hash:
            settings = ({"protocol": one.protocol, **one.settings} for one in (first, other))
            hashes = f"protocol hash: {first.protocol_hash} → {other.protocol_hash}"
            how = listed(differences(*settings)) or hashes
            return f"{first.path} and {other.path} were evaluated differently: {how}"
    return None


def refuse_other_graders(evaluations: Sequence[Evaluation]) -> None:
    """Refuse evaluations judged by different graders.

    Raises:
        ConfigError: two evaluations have different `GRADER_VERSION`s; names them and the remedy.
    """
    judged = [(one, one.settings.get("grader_version")) for one in evaluations]
    known = [(one, str(version)) for one, version in judged if version is not None]
    for one, version in known[1:]:
        if version != known[0][1]:
            old = [str(e.path) for e, v in known if v != GRADER_VERSION]
            raise ConfigError(
                f"{known[0][0].path} was judged by grader {known[0][1]} and {one.path} by grader "
                f"{version}, so a difference may come from the grader; rejudge them first: python "
                f"-m coding_model_project eval rejudge {' '.join(dict.fromkeys(old))}"
            )


# ── pairs ─────────────────────────────────────────────────────────────────────────────────────────


Groups = Mapping[str, Sequence[Result]]
"""Graded results of one seed and data set, by problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of samples, or a difference of shares, with its 95% interval over seeds and problems."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Share):
    """One side's pass@k over the shared problems."""

    by_seed: tuple[float, ...]
    std: float | None
    """Standard deviation over seeds; None with one seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One side's cost on a data set, over all its problems: the mean over seeds."""

    samples: float
    tokens: float
    judge_s: float
    truncated: float
    """Samples cut off by the token limit."""
    ungradable: float
    """Samples without a verdict, which are excluded from rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sides on one data set."""

    dataset: str
    first: str
    second: str
    n_problems: int
    not_shared: int
    """Problems excluded because not every seed of both sides has k graded samples for them."""
    first_score: Score
    second_score: Score
    delta: float
    low: float
    high: float
    """95% interval of `delta`, over seeds and problems."""
    permutation_p: float
    """p-value of the paired permutation test over problems."""
    mcnemar_p: float
    """Exact p-value of McNemar's test on each problem's majority outcome."""
    seeds_p: float | None
    """p-value of Welch's t-test over seeds; None if a side has one seed."""
    p: float
    """Larger of `permutation_p` and `seeds_p`: a difference must generalise to other problems and to
    other seeds (an intersection-union test, Berger 1982)."""
    corrected_p: float
    """`p` after Holm's correction over all pairs."""
    detectable: float
    """Smallest true difference found with 80% power (`significance.detectable`). If the sides are equal,
    which has no spread, `least_changes` as a share of problems."""
    least_changes: int
    """Least number of changed problems for which McNemar's test can be significant."""
    gained: tuple[str, ...]
    """Problems that the majority of the second side's samples solve, but not of the first side's."""
    lost: tuple[str, ...]
    errors: tuple[ErrorShift, ...]
    """Shares of error types."""
    first_cost: Cost
    second_cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Pairs of the first side with each other side."""

    k: int
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    """Caveats for interpreting the numbers."""


def compare(sides: Sequence[Side], *, k: int = 1) -> Comparison:
    """Compare each side with the first, on every data set that both have.

    Args:
        sides: at least two sides.
        k: value of k for pass@k.

    Raises:
        ConfigError: the sides have no data set or no problem with k graded samples in common, or
            different `GRADER_VERSION`s.
    """
    refuse_other_graders([one for side in sides for one in side.seeds])
    base, *others = sides
    work = [(other, name) for other in others for name in _shared(base, other)]
    pairs = [_pair(name, base, other, k, len(work)) for other, name in work]
    corrected = holm([pair.p for pair in pairs])
    return Comparison(
        k=k,
        pairs=tuple(replace(pair, corrected_p=p) for pair, p in zip(pairs, corrected, strict=True)),
        notes=tuple(_notes(sides)),
    )


def _shared(first: Side, second: Side) -> list[str]:
    """Return the data sets that both sides have."""
    shared = [name for name in _datasets(first) if name in _datasets(second)]
    if not shared:
        raise ConfigError(
            f"{first.name} and {second.name} have no data set in common: "
            f"{', '.join(_datasets(first))} and {', '.join(_datasets(second))}"
        )
    return shared


def _pair(dataset: str, first: Side, second: Side, k: int, n_comparisons: int) -> Pair:
    """Compare two sides on a data set, without correcting the p-value."""
    sides = [[one.by_problem(dataset) for one in side.seeds] for side in (first, second)]
    seeds = [groups for side in sides for groups in side]
    everywhere = [name for name in seeds[0] if all(len(s.get(name, ())) >= k for s in seeds)]
    if not everywhere:
        raise ConfigError(
            f"{dataset}: {first.name} and {second.name} have no problem in common with {k} graded "
            f"samples{'; pass a smaller --k' if k > 1 else ''}"
        )
    first_SP, second_SP = (_table(side, everywhere, partial(problem_rate, k=k)) for side in sides)
    before, after = (_majority(side, everywhere) for side in sides)
    gained = tuple(n for n, a, b in zip(everywhere, before, after, strict=True) if b and not a)
    lost = tuple(n for n, a, b in zip(everywhere, before, after, strict=True) if a and not b)
    difference = hierarchical_interval(first_SP, second_SP)
    # `paired_test` subtracts its second argument.
    tested = paired_test(second_SP.mean(axis=0).tolist(), first_SP.mean(axis=0).tolist())
    first_score, second_score = _score(first_SP), _score(second_SP)
    several = len(first.seeds) > 1 and len(second.seeds) > 1
    seeds_p = welch(first_score.by_seed, second_score.by_seed) if several else None
    p = max(tested.p_value, seeds_p or 0.0)
    return Pair(
        dataset=dataset,
        first=first.name,
        second=second.name,
        n_problems=len(everywhere),
        not_shared=len({name for groups in seeds for name in groups}) - len(everywhere),
        first_score=first_score,
        second_score=second_score,
        delta=tested.delta,
        low=difference.low,
        high=difference.high,
        permutation_p=tested.p_value,
        mcnemar_p=mcnemar(len(gained), len(lost)),
        seeds_p=seeds_p,
        p=p,
        corrected_p=p,
        detectable=detectable(difference.error, n_comparisons=n_comparisons)
        or least_changes(n_comparisons) / len(everywhere),
        least_changes=least_changes(n_comparisons),
        gained=gained,
        lost=lost,
        errors=error_shifts(sides[0], sides[1], everywhere),
        first_cost=_cost(first.seeds, dataset),
        second_cost=_cost(second.seeds, dataset),
    )


def _table(
    seeds: Sequence[Groups], problems: Sequence[str], value: Callable[[Sequence[Result]], float]
) -> NDArray[np.float64]:
    """Return a value of each problem's results, a row per seed and a column per problem."""
    return np.array([[value(groups[name]) for name in problems] for groups in seeds])


def _majority(seeds: Sequence[Groups], problems: Sequence[str]) -> list[bool]:
    """Return, per problem, whether more than half of its samples are accepted."""
    return [
        fmean(bool(result.passed) for groups in seeds for result in groups[name]) > 0.5
        for name in problems
    ]


def _score(rates_SP: NDArray[np.float64]) -> Score:
    low, high = side_interval(rates_SP)
    by_seed = rates_SP.mean(axis=1).tolist()
    return Score(
        mean=fmean(by_seed),
        low=low,
        high=high,
        by_seed=tuple(by_seed),
        std=stdev(by_seed) if len(by_seed) > 1 else None,
    )


def _cost(seeds: Sequence[Evaluation], dataset: str) -> Cost:
    results = [result for one in seeds for result in one.results if result.dataset == dataset]
    n = len(seeds)
    return Cost(
        samples=len(results) / n,
        tokens=sum(result.tokens for result in results) / n,
        judge_s=sum(result.judge_s + result.repair_s for result in results) / n,
        truncated=sum(result.truncated for result in results) / n,
        ungradable=sum(result.ungradable is not None for result in results) / n,
    )


def _datasets(side: Side) -> list[str]:
    return list(dict.fromkeys(name for one in side.seeds for name in one.datasets()))


def _notes(sides: Sequence[Side]) -> Iterator[str]:
    single = [side.name for side in sides if len(side.seeds) == 1]
    if single:
        yield f"{', '.join(single)}: one seed each, so the comparison says nothing about other seeds"
    for side in sides:
        if len({(one.model, one.seed) for one in side.seeds}) < len(side.seeds):
            yield f"{side.name}: several evaluations share model and seed, so they are not independent"
    everywhere = set.intersection(*(set(_datasets(side)) for side in sides))
    for name in dict.fromkeys(name for side in sides for name in _datasets(side)):
        if name not in everywhere:
            yield f"{name}: skipped where a side does not have it"


# ── error types ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShift:
    """One error type on two sides."""

    error: str
    """Error group (`types.ErrorType.group`)."""
    first: Share
    second: Share
    delta: Share
    """Second minus first, paired by problem."""


def error_shifts(
    first: Sequence[Groups], second: Sequence[Groups], problems: Sequence[str]
) -> tuple[ErrorShift, ...]:
    """Return the error types of either side, weighting problems equally.

    Args:
        first, second: results by seed.
        problems: problems that all seeds have.
    """
    shifts = []
    for group in ERROR_GROUPS:
        kinds = {str(kind) for kind in ErrorType if kind.group == group}

        def share(results: Sequence[Result], kinds: set[str] = kinds) -> float:
            return fmean(one.error in kinds for one in results)

        first_SP, second_SP = (_table(side, problems, share) for side in (first, second))
        if first_SP.any() or second_SP.any():
            delta = hierarchical_interval(first_SP, second_SP)
            mean = float(second_SP.mean() - first_SP.mean())
            shifts.append(
                ErrorShift(
                    error=str(group),
                    first=_share(first_SP),
                    second=_share(second_SP),
                    delta=Share(mean=mean, low=delta.low, high=delta.high),
                )
            )
    return tuple(shifts)


def _share(rates_SP: NDArray[np.float64]) -> Share:
    low, high = side_interval(rates_SP)
    return Share(mean=float(rates_SP.mean()), low=low, high=high)


# ── EVAL@budget ────────────────────────────────────────────────────────────────────────────────────
#
# Shares solved with the same tokens, or the same judge-seconds. For example, it compares repaired with
# independent samples: a repair must beat the further samples that its tokens would have bought.

_N_POINTS = 8
_KINDS = ("tokens", "judge_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Both evaluations at one budget per problem."""

    dataset: str
    kind: str
    """Unit of the budget, one of `_KINDS`."""
    budget: float
    first: float
    """Share of problems solved within the budget, averaged over orders of the samples."""
    second: float
    delta: float
    """Second minus first, with its 95% interval over problems."""
    low: float
    high: float
    p: float
    """p-value of the paired permutation test over problems, not corrected for the number of points."""


def at_budgets(first: Evaluation, second: Evaluation) -> list[Point]:
    """Return points in equal ratios, up to the largest budget for which every problem has samples.

    Beyond it, a problem without further samples would wrongly count as unsolved.

    Raises:
        ConfigError: the evaluations have no graded problem in common, or different `GRADER_VERSION`s.
    """
    refuse_other_graders([first, second])
    points: list[Point] = []
    for name in (name for name in first.datasets() if name in second.datasets()):
        one, other = first.by_problem(name), second.by_problem(name)
        shared = [problem for problem in one if problem in other]
        if shared:
            groups = [[side[problem] for problem in shared] for side in (one, other)]
            points += _points(name, *groups)
    if not points:
        raise ConfigError(f"{first.path} and {second.path} have no graded problem in common")
    return points


def _points(
    dataset: str, first: Sequence[Sequence[Result]], second: Sequence[Sequence[Result]]
) -> list[Point]:
    rng = np.random.default_rng(0)
    sides = [[first_accepted_costs(group, rng) for group in side] for side in (first, second)]
    points = []
    for column, kind in enumerate(_KINDS):
        spent = [[costs[:, column] for costs, _ in side] for side in sides]
        max_budget = min(float(total[column]) for side in sides for _, total in side)
        for budget in budgets([costs for side in spent for costs in side], max_budget, _N_POINTS):
            rates = [[float((costs <= budget).mean()) for costs in side] for side in spent]
            tested = paired_test(rates[1], rates[0])
            point = Point(
                dataset=dataset,
                kind=kind,
                budget=budget,
                first=sum(rates[0]) / len(rates[0]),
                second=sum(rates[1]) / len(rates[1]),
                delta=tested.delta,
                low=tested.low,
                high=tested.high,
                p=tested.p_value,
            )
            points.append(point)
    return points
