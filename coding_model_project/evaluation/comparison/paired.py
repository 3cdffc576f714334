"""Paired differences between sides: the second side minus the first, over problems that both have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison.error_shares import ErrorShift, Groups, error_shifts
from coding_model_project.evaluation.comparison.sides import Side, refuse_other_graders
from coding_model_project.evaluation.results import Evaluation
from coding_model_project.evaluation.statistics.intervals import hierarchical_interval, paired_test
from coding_model_project.evaluation.statistics.pass_at_k import pass_at_k
from coding_model_project.evaluation.statistics.significance import (
    detectable,
    holm,
    least_changes,
    mcnemar,
    welch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One side's pass@k over the shared problems."""

    mean: float
    low: float
    high: float
    """95%, over seeds and problems."""
    by_seed: tuple[float, ...]
    std: float | None
    """Over seeds; None for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one side's evaluation of a data set took, over all its problems: the mean over seeds."""

    samples: float
    tokens: float
    judge_s: float
    truncated: float
    """Samples ended by the token limit."""
    ungradable: float
    """Samples without a verdict, which are part of no rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sides on one data set."""

    dataset: str
    first: str
    second: str
    n_problems: int
    not_shared: int
    """Problems left out because not every seed of both sides has k graded samples of them."""
    first_score: Score
    second_score: Score
    delta: float
    low: float
    high: float
    """95% interval of `delta`, over seeds and problems."""
    permutation_p: float
    """Of the paired permutation test over problems."""
    mcnemar_p: float
    """Exact, on what most samples of each problem come to."""
    seeds_p: float | None
    """Of Welch's t-test over seeds; None where a side has one seed."""
    p: float
    """The larger of these two: over seeds, a difference must hold for other problems and other seeds
    (an intersection-union test, Berger 1982)."""
    corrected_p: float
    """`p` after Holm's correction over all pairs."""
    detectable: float
    """The smallest difference that would be found with 80% power (`significance.detectable`); if nothing
    differs, which tells no spread, the share of problems that `least_changes` is."""
    least_changes: int
    """Fewer changed problems than this can never be significant in McNemar's test."""
    gained: tuple[str, ...]
    """Problems that most samples of the second side solve and of the first do not."""
    lost: tuple[str, ...]
    errors: tuple[ErrorShift, ...]
    """Why samples were not accepted."""
    first_cost: Cost
    second_cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All pairs, each of a side with the first side."""

    k: int
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    """What a reader must know to read the numbers right."""


def compare(sides: Sequence[Side], *, k: int = 1) -> Comparison:
    """Compare each side with the first, on every data set that both have.

    Args:
        sides: at least two.
        k: of the pass@k that is compared.

    Raises:
        ConfigError: no data set, or no problem with k graded samples, is in common; or different
            `GRADER_VERSION`s have judged them.
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
    """Data sets that both have."""
    shared = [name for name in _datasets(first) if name in _datasets(second)]
    if not shared:
        raise ConfigError(
            f"{first.name} and {second.name} have no data set in common: "
            f"{', '.join(_datasets(first))} and {', '.join(_datasets(second))}"
        )
    return shared


def _pair(dataset: str, first: Side, second: Side, k: int, n_comparisons: int) -> Pair:
    """One pair, its p-value not yet corrected."""
    sides = [[one.by_problem(dataset) for one in side.seeds] for side in (first, second)]
    seeds = [groups for side in sides for groups in side]
    everywhere = [name for name in seeds[0] if all(len(s.get(name, ())) >= k for s in seeds)]
    if not everywhere:
        raise ConfigError(
            f"{dataset}: {first.name} and {second.name} have no problem in common with {k} graded "
            f"samples{'; choose a smaller --k' if k > 1 else ''}"
        )
    first_SP, second_SP = (_rates(side, everywhere, k) for side in sides)
    before, after = (_majority(side, everywhere) for side in sides)
    gained = tuple(n for n, a, b in zip(everywhere, before, after, strict=True) if b and not a)
    lost = tuple(n for n, a, b in zip(everywhere, before, after, strict=True) if a and not b)
    difference = hierarchical_interval(first_SP, second_SP)
    # `paired_test` subtracts what comes second.
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


def _rates(seeds: Sequence[Groups], problems: Sequence[str], k: int) -> NDArray[np.float64]:
    """pass@k, a row per seed and a column per problem."""
    return np.array(
        [
            [pass_at_k(len(g[name]), sum(bool(r.passed) for r in g[name]), k) for name in problems]
            for g in seeds
        ]
    )


def _majority(seeds: Sequence[Groups], problems: Sequence[str]) -> list[bool]:
    """Whether more than half of all samples are accepted; of one greedy sample, whether it is."""
    return [
        fmean(bool(result.passed) for groups in seeds for result in groups[name]) > 0.5
        for name in problems
    ]


def _score(rates_SP: NDArray[np.float64]) -> Score:
    interval = hierarchical_interval(np.zeros((1, rates_SP.shape[1])), rates_SP)
    by_seed = rates_SP.mean(axis=1).tolist()
    return Score(
        mean=fmean(by_seed),
        low=interval.low,
        high=interval.high,
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
        yield f"{', '.join(single)}: one run each, so nothing here says what another seed would give"
    for side in sides:
        if len({(one.model, one.seed) for one in side.seeds}) < len(side.seeds):
            yield f"{side.name}: evaluations of one model with one seed are no seeds, but copies"
    everywhere = set.intersection(*(set(_datasets(side)) for side in sides))
    for name in dict.fromkeys(name for side in sides for name in _datasets(side)):
        if name not in everywhere:
            yield f"{name}: not every side has it"
