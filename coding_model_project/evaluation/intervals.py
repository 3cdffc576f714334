"""pass@k, its uncertainty, tests of differences, and the smallest detectable difference.

Problems are the unit, because samples of a problem are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_model_project.data.rates import wilson
from coding_model_project.extras import extra

N_RESAMPLES = 10_000
_CHUNK = 1_000
"""Resamples drawn at once, to bound memory for data sets of thousands of problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """The difference of two models' rates on the same problems."""

    delta: float
    """Mean difference per problem, first minus second."""
    low: float
    high: float
    """95% interval of `delta`."""
    p_value: float
    """Two-sided p-value of the hypothesis that the models' labels are exchangeable per problem."""
    n_problems: int


def bootstrap_interval(
    rates: Sequence[float], *, level: float = 0.95, n: int = N_RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Return a percentile bootstrap interval for the mean of per-problem rates, resampling problems.

    Args:
        rates: one number per problem, such as its share of accepted samples.
        n: number of resamples.

    Raises:
        ValueError: there are no problems, or a rate is not finite.
    """
    values = _finite(rates)
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[rng.integers(len(values), size=(size, len(values)))].mean(axis=1)
            for size in _chunks(n)
        ]
    )
    tail = (1.0 - level) / 2
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def score_interval(mean: float, variance: float, n_problems: int) -> tuple[float, float]:
    """Return a 95% interval for the mean of rates in [0, 1]: Wilson's, for an effective sample size.

    A percentile bootstrap covers too little near 0 and 1. Wilson's interval is right there, but takes
    independent yes-or-no observations. The effective size is the number of these that would give the
    mean the same variance (Korn and Graubard 1998): the number of problems over the design effect.
    Few passes estimate that effect badly, so one problem of effect 1, the largest possible without
    seeds, is added to the estimate. The limits have a continuity correction that fades from half an
    observation on the side of the nearer end to none on the other. The interval of 0 of n, or n of
    n, is therefore Wilson's. `tests.soak.intervals` simulates the coverage.

    Args:
        variance: estimated variance of the mean.
    """
    scatter = n_problems**2 * variance
    design_effect = (scatter + 1) / (n_problems * mean * (1 - mean) + 1)
    size = n_problems / design_effect
    low, _ = wilson(max(0.0, mean - (1 - mean) / (2 * size)), size)
    _, high = wilson(min(1.0, mean + mean / (2 * size)), size)
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95% interval and its standard error."""

    low: float
    high: float
    error: float


def hierarchical_interval(
    first_SP: NDArray[np.float64],
    second_SP: NDArray[np.float64],
    *,
    n: int = N_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return a percentile bootstrap interval for the second side's mean rate minus the first's.

    Resamples seeds within each side, then problems, which all seeds of both sides share: the
    bootstrap of crossed factors of Owen 2007 ("The pigeonhole bootstrap"). First spreads the seeds'
    means by √(S/(S−1)), because resampling S of them underestimates the variance by that factor's
    square (Davison and Hinkley 1997, 3.8). With one seed per side it is the paired bootstrap over
    problems. Simulated coverage of "95%" with 3 seeds per side: 90% (very different seeds) to 99%.

    Args:
        first_SP, second_SP: rates, a row per seed and a column per problem; zeros for `first_SP`
            give the interval of the second side's own mean.

    Raises:
        ValueError: the problems differ, there are none, or a rate is not finite.
    """
    if first_SP.shape[1:] != second_SP.shape[1:]:
        raise ValueError("both sides need the same problems, one column each")
    first_SP, second_SP = _spread(first_SP), _spread(second_SP)
    n_problems = first_SP.shape[1]
    rng = np.random.default_rng(seed)
    draws = []
    for size in _chunks(n):
        differences = _seeds_drawn(second_SP, size, rng) - _seeds_drawn(first_SP, size, rng)
        problems = rng.integers(n_problems, size=(size, n_problems))
        draws.append(np.take_along_axis(differences, problems, axis=1).mean(axis=1))
    means = np.concatenate(draws)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(low=float(low), high=float(high), error=float(means.std()))


def _spread(rates_SP: NDArray[np.float64]) -> NDArray[np.float64]:
    _finite(rates_SP.ravel())
    n_seeds = len(rates_SP)
    if n_seeds == 1:
        return rates_SP
    means = rates_SP.mean(axis=1, keepdims=True)
    return rates_SP + (np.sqrt(n_seeds / (n_seeds - 1)) - 1) * (means - means.mean())


def _seeds_drawn(
    rates_SP: NDArray[np.float64], size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return `size` rows of rates by problem, each averaged over a resample of the seeds."""
    n_seeds = len(rates_SP)
    counts = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=size)
    return counts @ rates_SP / n_seeds


def paired_test(
    first: Sequence[float], second: Sequence[float], *, n: int = N_RESAMPLES, seed: int = 0
) -> PairedTest:
    """Compare two models by problem: a sign-flip permutation test, and the difference's interval.

    The p-value is (b + 1)/(n + 1) for b of n random flips at least as extreme (Phipson and Smyth
    2010), so it is at least 1/(n + 1).

    Args:
        first, second: rates per problem, in the same order.
        n: number of random flips, and of resamples for the interval.

    Raises:
        ValueError: the numbers of problems differ, there are none, or a rate is not finite.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} problems cannot be paired with {len(second)}")
    differences = _finite(first) - _finite(second)
    delta = float(differences.mean())
    rng = np.random.default_rng(seed)
    # Tolerance: rounding must not make a tied flip look less extreme than the observed difference.
    threshold = abs(delta) - 1e-12
    extreme = 0
    for size in _chunks(n):
        signs = rng.integers(0, 2, size=(size, len(differences)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ differences) / len(differences) >= threshold).sum())
    low, high = bootstrap_interval(differences.tolist(), n=n, seed=seed)
    return PairedTest(
        delta=delta,
        low=low,
        high=high,
        p_value=(extreme + 1) / (n + 1),
        n_problems=len(differences),
    )


def _finite(rates: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    values = np.asarray(rates, dtype=np.float64)
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError("rates must be finite numbers, one per problem, for at least one problem")
    return values


def _chunks(n: int) -> list[int]:
    return [min(_CHUNK, n - start) for start in range(0, n, _CHUNK)]


# ── pass@k ────────────────────────────────────────────────────────────────────────────────────────


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the probability that k of n samples, drawn without replacement, include an accepted one.

    The unbiased estimator 1 − C(n−c, k)/C(n, k) for c accepted samples of Chen et al. 2021
    (arXiv:2107.03374). Drawing with replacement underestimates it.

    Raises:
        ValueError: not 0 ≤ c ≤ n or not 1 ≤ k ≤ n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {c} accepted in {n} samples is not defined")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def rate_interval(rates: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95% interval of the mean of per-problem rates in [0, 1] (`score_interval`)."""
    n = len(rates)
    variance = float(np.var(rates, ddof=1)) / n if n > 1 else 0.0
    return score_interval(float(np.mean(rates)), variance, n)


def ratio_values(parts: Sequence[float], totals: Sequence[float]) -> NDArray[np.float64]:
    """Return a value per problem whose mean is Σ parts / Σ totals, and whose scatter is that ratio's.

    The linearised ratio estimator (Cochran 1977, 2.11), for rates over units that problems have
    different numbers of, such as instructions.

    Args:
        parts, totals: counts per problem.
    """
    part, total = np.asarray(parts, dtype=np.float64), np.asarray(totals, dtype=np.float64)
    ratio = part.sum() / total.sum()
    return ratio + (part - ratio * total) / total.mean()


def side_interval(rates_SP: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95% interval of a mean rate over seeds and problems; with one seed `rate_interval`.

    Args:
        rates_SP: rates in [0, 1], a row per seed and a column per problem.
    """
    n_seeds, n_problems = rates_SP.shape
    if n_seeds == 1:
        return rate_interval(rates_SP[0])
    error = hierarchical_interval(np.zeros((1, n_problems)), rates_SP).error
    return score_interval(float(rates_SP.mean()), error**2, n_problems)


# ── tests of differences ──────────────────────────────────────────────────────────────────────────

ALPHA = 0.05
"""Accepted probability of a false positive, over all comparisons together."""

POWER = 0.8
"""Probability of finding a difference of the detectable size."""


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test.

    Args:
        gained, lost: numbers of problems that only the second, and only the first, solves. Problems
            that both or neither solve have no influence.
    """
    if gained + lost == 0:
        return 1.0
    with extra("stats"):
        from scipy import stats
    return float(stats.binomtest(gained, gained + lost, 0.5).pvalue)


def welch(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the two-sided p-value of Welch's t-test on scores by seed, or None if none vary."""
    if np.ptp(first) == 0 and np.ptp(second) == 0:
        return None
    with extra("stats"):
        from scipy import stats
    result: Any = stats.ttest_ind(first, second, equal_var=False)
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons with Holm's step-down method (Holm 1979).

    Comparing each corrected value with a level keeps the probability of any false positive below that
    level, whatever the dependence between the tests.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected.tolist()


def detectable(error: float, *, n_comparisons: int = 1) -> float:
    """Return the smallest true difference found with 80% power: (z[1−α/2] + z[power]) × its error.

    The minimum detectable effect of Bloom 1995 (Evaluation Review 19(5)); Miller 2024
    (arXiv:2411.00640) uses it for evaluations.

    Args:
        error: standard error of the difference.
        n_comparisons: number of comparisons, by which α is divided, as in Holm's first step.
    """
    with extra("stats"):
        from scipy import stats
    z = stats.norm.ppf(1 - ALPHA / n_comparisons / 2) + stats.norm.ppf(POWER)
    return float(z * error)


def least_changes(n_comparisons: int = 1) -> int:
    """Return the least number of one-way changes for which McNemar's test can be significant.

    The p-value of m changed problems, all in one direction, is 2^(1−m).
    """
    return math.ceil(1 + math.log2(n_comparisons / ALPHA))
