"""Significance tests of differences, and the smallest detectable difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coding_model_project.extras import extra

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
