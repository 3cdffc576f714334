"""Shares of error types by side, and their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from coding_model_project.evaluation.results import Result
from coding_model_project.evaluation.statistics.intervals import hierarchical_interval
from coding_model_project.evaluation.statistics.pass_at_k import side_interval
from coding_model_project.types import ERROR_GROUPS, ErrorType

Groups = Mapping[str, Sequence[Result]]
"""Graded results of one seed and data set, by problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of samples, or a difference of shares, with its 95% interval over seeds and problems."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShift:
    """One error type on two sides."""

    error: str
    """Error group (`types.ErrorType.group`)."""
    first: Share
    second: Share
    delta: Share
    """Second minus first, paired by problem."""


def error_shifts(
    first: Sequence[Groups], second: Sequence[Groups], problems: Sequence[str]
) -> tuple[ErrorShift, ...]:
    """Return the error types of either side, weighting problems equally.

    Args:
        first, second: results by seed.
        problems: problems that all seeds have.
    """
    shifts = []
    for group in map(str, ERROR_GROUPS):
        first_SP, second_SP = (_shares(side, problems, group) for side in (first, second))
        if first_SP.any() or second_SP.any():
            shifts.append(
                ErrorShift(
                    error=group,
                    first=_share(first_SP),
                    second=_share(second_SP),
                    delta=_difference(first_SP, second_SP),
                )
            )
    return tuple(shifts)


def _shares(seeds: Sequence[Groups], problems: Sequence[str], group: str) -> NDArray[np.float64]:
    """Return shares of samples with an error of this group: a row per seed, a column per problem."""
    return np.array(
        [[fmean(_is(result, group) for result in g[name]) for name in problems] for g in seeds]
    )


def _is(result: Result, group: str) -> bool:
    return result.error is not None and str(ErrorType(result.error).group) == group


def _share(rates_SP: NDArray[np.float64]) -> Share:
    low, high = side_interval(rates_SP)
    return Share(mean=float(rates_SP.mean()), low=low, high=high)


def _difference(first_SP: NDArray[np.float64], second_SP: NDArray[np.float64]) -> Share:
    interval = hierarchical_interval(first_SP, second_SP)
    mean = float(second_SP.mean() - first_SP.mean())
    return Share(mean=mean, low=interval.low, high=interval.high)
