"""Curves of a study: means of an arm over its seeds, and thinning to a number of points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from coding_model_project.reports.page_data import Line

Curve = Mapping[int, float]
"""Shares, 0 to 1, by step."""


def together(curves: Iterable[Curve], n_points: int) -> int:
    """Return the number of consecutive steps per point that gives at most `n_points` points."""
    last = max((step for curve in curves for step in curve), default=0)
    return math.ceil(last / n_points) or 1


def thinned(curve: Curve, width: int) -> Curve:
    """Return means of `width` consecutive steps, each at its last step."""
    groups: dict[int, list[float]] = {}
    for step, value in curve.items():
        groups.setdefault(math.ceil(step / width) * width, []).append(value)
    return {step: fmean(values) for step, values in groups.items()}


def arm_line(arm: str, curves: Sequence[Curve]) -> Line:
    """Return the mean over an arm's seeds, with a band from the least to the greatest seed.

    The line has only steps that all seeds have, so that a missing seed does not bend it.
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
