"""A study's curves: an arm's mean over its seeds, and means of several steps where a page has no room."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from coding_model_project.reports.page_data import Line

Curve = Mapping[int, float]
"""Shares, 0 to 1, by step."""


def together(curves: Iterable[Curve], n_points: int) -> int:
    """Return how many steps in a row one point must stand for, so that there are at most `n_points`."""
    last = max((step for curve in curves for step in curve), default=0)
    return math.ceil(last / n_points) or 1


def thinned(curve: Curve, width: int) -> Curve:
    """Return means of `width` steps in a row, each at the last of them."""
    groups: dict[int, list[float]] = {}
    for step, value in curve.items():
        groups.setdefault(math.ceil(step / width) * width, []).append(value)
    return {step: fmean(values) for step, values in groups.items()}


def arm_line(arm: str, curves: Sequence[Curve]) -> Line:
    """Return the mean over an arm's seeds, with a band from the least to the greatest of them.

    It ends where one of them ends: a seed that lags behind does not bend it.
    """
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    by_step = [[curve[step] for curve in curves] for step in steps]
    several = len(curves) > 1
    return Line(
        label=f"{arm}, mean of {len(curves)} seeds" if several else f"{arm}, one seed",
        steps=steps,
        values=[fmean(values) for values in by_step],
        low=[min(values) for values in by_step] if several else None,
        high=[max(values) for values in by_step] if several else None,
    )
