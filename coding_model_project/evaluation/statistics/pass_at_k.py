"""pass@k and error shares of verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coding_model_project.evaluation.statistics.intervals import (
    hierarchical_interval,
    score_interval,
)
from coding_model_project.grading.base import Outcome
from coding_model_project.types import ERROR_GROUPS, Verdict


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


def rates(groups: Sequence[Sequence[Verdict]], k: int = 1) -> list[float]:
    """Return pass@k per problem, from each problem's verdicts."""
    return [pass_at_k(len(group), sum(v.passed for v in group), k) for group in groups]


def rate_interval(rates: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95% interval of the mean of per-problem rates in [0, 1] (`score_interval`)."""
    n = len(rates)
    variance = float(np.var(rates, ddof=1)) / n if n > 1 else 0.0
    return score_interval(float(np.mean(rates)), variance, n)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Shares of graded completions: `accepted` and `errors` sum to 1, or are 0 if none was graded."""

    graded: int
    accepted: float
    errors: Mapping[str, float]
    """Share of each error group (`types.ErrorType.group`)."""
    ungradable: int
    """Completions without a verdict, excluded from all shares. Always report this number."""
    judge_s: float
    """Wall-clock seconds of judging, summed over programs, including concurrent ones."""


def summarise(outcomes: Iterable[Outcome]) -> Summary:
    """Summarise the outcomes of completions."""
    outcomes = list(outcomes)
    verdicts = [outcome for outcome in outcomes if isinstance(outcome, Verdict)]
    groups = [verdict.error.group for verdict in verdicts if verdict.error is not None]
    total = max(1, len(verdicts))
    return Summary(
        graded=len(verdicts),
        accepted=sum(verdict.passed for verdict in verdicts) / total,
        errors={str(group): groups.count(group) / total for group in ERROR_GROUPS},
        ungradable=len(outcomes) - len(verdicts),
        judge_s=sum(verdict.judge_s for verdict in verdicts),
    )
