"""Pass rate against what was spent: samples are drawn until one is accepted or the budget is gone.

For a budget b per problem, the chance that a problem's first accepted sample has ended by the time b
is spent, its own cost and those before it included. The samples' order is averaged over random
permutations, so that it does not matter which came first; problems are the unit of the interval. A
verdict from the cache costs what judging that program cost when it was done. A sample with repairs costs
what all of its attempts do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_model_project.evaluation.results import Result
from coding_model_project.evaluation.statistics.pass_at_k import rate_interval

N_ORDERS = 200
"""Random orders of each problem's samples."""
N_POINTS = 12
_N_RESAMPLES = 2_000


def curves(groups: Sequence[Sequence[Result]]) -> dict[str, list[dict[str, Any]]]:
    """Curves against tokens and against judge-seconds.

    Args:
        groups: each problem's graded results.

    Returns:
        tokens, judge_s: points of `budget` (per problem), `pass_rate`, `low`, `high`. The last
        budget pays for every sample of any problem, so its rate is the share of problems solved.
    """
    rng = np.random.default_rng(0)
    solved = [first_accepted_costs(group, rng) for group in groups]
    result: dict[str, list[dict[str, Any]]] = {}
    for column, name in enumerate(("tokens", "judge_s")):
        spent = [costs[:, column] for costs, _ in solved]
        most = max(float(total[column]) for _, total in solved)
        least = min(
            (float(c[np.isfinite(c)].min()) for c in spent if np.isfinite(c).any()), default=most
        )
        result[name] = [_point(spent, budget, name) for budget in _budgets(least, most)]
    return result


def first_accepted_costs(
    group: Sequence[Result], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a problem's first accepted sample costs, in random orders of its samples.

    Returns:
        Shape (N_ORDERS, 2): tokens and judge-seconds spent when it was found, infinite if none is.
        Shape (2,): what all samples cost together.
    """
    judged_s: dict[str | None, float] = {}
    for result in group:
        judged_s[result.program] = max(result.judge_s, judged_s.get(result.program, 0.0))
    costs = [(r.tokens, judged_s[r.program] + r.repair_s) for r in group]
    each = np.array(costs, dtype=np.float64)
    passed = np.array([bool(result.passed) for result in group])
    if not passed.any():
        return np.full((N_ORDERS, 2), np.inf), each.sum(axis=0)
    orders = np.argsort(rng.random((N_ORDERS, len(group))), axis=1)
    first = passed[orders].argmax(axis=1)
    spent = each[orders].cumsum(axis=1)
    return spent[np.arange(N_ORDERS), first], each.sum(axis=0)


def _budgets(least: float, most: float) -> list[float]:
    """Budgets in equal ratios, from the cheapest success to all there is."""
    if most <= 0 or least >= most:
        return [most]
    low = max(least, most / 1000)
    return [float(budget) for budget in np.geomspace(low, most, N_POINTS)]


def _point(spent: Sequence[NDArray[np.float64]], budget: float, name: str) -> dict[str, Any]:
    # Sums in another order may differ in their last digits.
    rates = [float((costs <= budget * (1 + 1e-9)).mean()) for costs in spent]
    low, high = rate_interval(rates, n=_N_RESAMPLES)
    return {
        "budget": round(budget) if name == "tokens" else round(budget, 4),
        "pass_rate": sum(rates) / len(rates),
        "low": low,
        "high": high,
    }
