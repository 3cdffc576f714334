"""Rates of parts of a data set: by difficulty, by month of publication, before and after a cutoff."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from coding_model_project.evaluation.results import Metrics, Result
from coding_model_project.evaluation.statistics.scores import pass_rates
from coding_model_project.types import Problem

MOST_DIFFICULTIES = 10
"""Maximum difficulty levels that are reported as parts; ratings such as 800 to 3500 have more."""

BEFORE, AFTER = "before", "from"


def part_metrics(
    results: Iterable[Result],
    problems: Sequence[Problem],
    ks: Sequence[int],
    cutoff: str | None = None,
) -> Metrics:
    """Return the rates of a data set's parts.

    Args:
        ks: values of k for pass@k.
        cutoff: the last day of a model's training data, such as "2024-09-01".

    Returns:
        by_difficulty: pass@k by level; by_month: pass@k by "2024-08"; cutoff: the day, and pass@k of
        the problems published before it and from it on. Each is absent with fewer than two parts.
    """
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.passed is not None:
            groups[result.problem].append(result)

    def rates(part_of: Callable[[Problem], str | None]) -> dict[str, Mapping[str, Mapping]]:
        parts: dict[str, list[list[Result]]] = defaultdict(list)
        for problem in problems:
            if problem.id in groups and (part := part_of(problem)) is not None:
                parts[part].append(groups[problem.id])
        return {part: pass_rates(parts[part], ks) for part in sorted(parts)}

    found: Metrics = {}
    levels = {one.difficulty for one in problems if one.difficulty is not None}
    if 1 < len(levels) <= MOST_DIFFICULTIES:
        found["by_difficulty"] = rates(
            lambda one: None if one.difficulty is None else str(one.difficulty)
        )
    if len(by_month := rates(lambda one: one.date and one.date[:7])) > 1:
        found["by_month"] = by_month
    if cutoff is not None:
        sides = rates(lambda one: one.date and (BEFORE if one.date < cutoff else AFTER))
        found["cutoff"] = {"day": cutoff, **sides}
    return found
