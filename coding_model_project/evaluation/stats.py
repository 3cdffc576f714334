"""How sure a score is. The problem is the unit: samples of one problem are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_RESAMPLES = 10_000
_CHUNK = 1_000
"""Resamples drawn at once: bounds memory for data sets of thousands of problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """How much the first model's rates exceed the second's, on the same problems."""

    delta: float
    """Mean difference per problem, first minus second."""
    low: float
    high: float
    """95% interval of `delta`."""
    p_value: float
    """Two-sided, of the hypothesis that per problem the two models' labels could be swapped."""
    n_problems: int


def bootstrap_interval(
    rates: Sequence[float], *, level: float = 0.95, n: int = N_RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """A percentile bootstrap interval for the mean of per-problem rates, problems resampled.

    Args:
        rates: one number per problem, such as its share of accepted samples.
        n: resamples.

    Raises:
        ValueError: no problems, or a rate that is not finite.
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


def paired_test(
    first: Sequence[float], second: Sequence[float], *, n: int = N_RESAMPLES, seed: int = 0
) -> PairedTest:
    """Compare two models by problem: a sign-flip permutation test, and the difference's interval.

    The p-value is (b + 1)/(n + 1) for b of n random flips at least as extreme (Phipson and Smyth
    2010), so it is never 0 and at least 1/(n + 1).

    Args:
        first, second: rates per problem, in the same order.
        n: random flips, and resamples of the interval.

    Raises:
        ValueError: not the same number of problems, none, or a rate that is not finite.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} problems cannot be paired with {len(second)}")
    differences = _finite(first) - _finite(second)
    delta = float(differences.mean())
    rng = np.random.default_rng(seed)
    # Rounding must not make a flip that ties with the observed difference look less extreme.
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


def _finite(rates: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(rates, dtype=np.float64)
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError("rates must be finite numbers, one per problem, and at least one")
    return values


def _chunks(n: int) -> list[int]:
    return [min(_CHUNK, n - start) for start in range(0, n, _CHUNK)]
