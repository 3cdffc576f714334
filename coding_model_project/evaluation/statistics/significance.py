"""Is a difference more than chance, and how small a one could have been found at all?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coding_model_project.extras import extra

ALPHA = 0.05
"""The chance of a false alarm that is put up with, over all comparisons together."""

POWER = 0.8
"""The chance of finding a difference of the size called detectable."""


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p-value of McNemar's test.

    Args:
        gained, lost: problems that only the second, and only the first, solves. Those that both or
            none solve say nothing.
    """
    if gained + lost == 0:
        return 1.0
    with extra("stats"):
        from scipy import stats
    return float(stats.binomtest(gained, gained + lost, 0.5).pvalue)


def welch(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The two-sided p-value of Welch's t-test on scores by seed; None if they do not vary at all."""
    if np.ptp(first) == 0 and np.ptp(second) == 0:
        return None
    with extra("stats"):
        from scipy import stats
    result: Any = stats.ttest_ind(first, second, equal_var=False)
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for being several, by Holm's step-down method (Holm 1979), in their order.

    Comparing each with a level holds the chance of any false alarm below that level, however the
    tests depend on each other.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected.tolist()


def detectable(error: float, *, n_comparisons: int = 1) -> float:
    """The smallest true difference found in 80% of repetitions: (z[1−α/2] + z[power]) × its error.

    The minimum detectable effect of Bloom 1995 (Evaluation Review 19(5)); Miller 2024
    (arXiv:2411.00640) has it for evaluations.

    Args:
        error: the difference's standard error.
        n_comparisons: made at once; α is divided by it, as in Holm's first step.
    """
    with extra("stats"):
        from scipy import stats
    z = stats.norm.ppf(1 - ALPHA / n_comparisons / 2) + stats.norm.ppf(POWER)
    return float(z * error)


def least_changes(n_comparisons: int = 1) -> int:
    """How many problems must change, all one way, before McNemar's test can be significant.

    The p-value of m such changes is 2^(1−m).
    """
    return math.ceil(1 + math.log2(n_comparisons / ALPHA))
