"""Pass rate by budget: samples are drawn until one is accepted or the budget is spent.

For a budget b per problem, the probability that the cost of the samples up to and including the first
accepted one is at most b. It is averaged over random orders of the samples. Intervals are over
problems. A cache hit costs what judging the program originally cost. A sample with repairs costs as
much as all its attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_model_project.evaluation.results import Result
from coding_model_project.evaluation.statistics.intervals import rate_interval

N_ORDERS = 200
"""Random orders per problem."""
N_POINTS = 12


def curves(groups: Sequence[Sequence[Result]]) -> dict[str, list[dict[str, Any]]]:
    """Compute the pass rate by tokens and by judge-seconds.

    Args:
        groups: each problem's graded results.

    Returns:
        tokens, judge_s: points of `budget` (per problem), `pass_rate`, `low`, `high`. The last
        budget covers all samples of any problem, so its rate is the share of problems solved.
    """
    rng = np.random.default_rng(0)
    solved = [first_accepted_costs(group, rng) for group in groups]
    result: dict[str, list[dict[str, Any]]] = {}
    for column, name in enumerate(("tokens", "judge_s")):
        spent = [costs[:, column] for costs, _ in solved]
        max_cost = max(float(total[column]) for _, total in solved)
        min_cost = min(
            (float(c[np.isfinite(c)].min()) for c in spent if np.isfinite(c).any()),
            default=max_cost,
        )
        result[name] = [_point(spent, budget, name) for budget in _budgets(min_cost, max_cost)]
    return result


def first_accepted_costs(
    group: Sequence[Result], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the cost up to a problem's first accepted sample, in random orders of its samples.

    Returns:
        Shape (N_ORDERS, 2): tokens and judge-seconds up to the first accepted sample; infinite if none
        is accepted. Shape (2,): the total cost of all samples.
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


def _budgets(min_cost: float, max_cost: float) -> list[float]:
    """Return budgets in equal ratios, from the cheapest success to the total cost."""
    if max_cost <= 0 or min_cost >= max_cost:
        return [max_cost]
    low = max(min_cost, max_cost / 1000)
    return [float(budget) for budget in np.geomspace(low, max_cost, N_POINTS)]


def _point(spent: Sequence[NDArray[np.float64]], budget: float, name: str) -> dict[str, Any]:
    # Sums in different orders may differ in their last digits.
    rates = [float((costs <= budget * (1 + 1e-9)).mean()) for costs in spent]
    low, high = rate_interval(rates)
    return {
        "budget": round(budget) if name == "tokens" else round(budget, 4),
        "pass_rate": sum(rates) / len(rates),
        "low": low,
        "high": high,
    }
