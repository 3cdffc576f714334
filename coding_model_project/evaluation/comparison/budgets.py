"""EVAL@budget of two evaluations: shares solved with the same tokens, or the same judge-seconds.

For example, it compares repaired with independent samples: a repair must beat the further samples that
its tokens would have bought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison.paired import refuse_other_graders
from coding_model_project.evaluation.results import Evaluation, Result
from coding_model_project.evaluation.statistics.budget import first_accepted_costs
from coding_model_project.evaluation.statistics.intervals import paired_test

N_POINTS = 8
KINDS = ("tokens", "judge_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Both evaluations at one budget per problem."""

    dataset: str
    kind: str
    """Unit of the budget, one of `KINDS`."""
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
    for column, kind in enumerate(KINDS):
        spent = [[costs[:, column] for costs, _ in side] for side in sides]
        max_budget = min(float(total[column]) for side in sides for _, total in side)
        for budget in _budgets(spent, max_budget):
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


def _budgets(spent: Sequence[Sequence[NDArray[np.float64]]], max_budget: float) -> list[float]:
    """Return budgets from the cheapest success to `most`, or only `most` if no success is cheaper."""
    finite = [
        float(c[np.isfinite(c)].min()) for side in spent for c in side if np.isfinite(c).any()
    ]
    least = min(finite, default=max_budget)
    if not 0 < least < max_budget:
        return [max_budget]
    return [*map(float, np.geomspace(least, max_budget, N_POINTS)[:-1]), max_budget]
