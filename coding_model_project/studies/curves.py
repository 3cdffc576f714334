"""A study's curves over each other, as a picture that a page on GitHub shows.

SVG, written here: the picture is small, and the same for the same runs, so that a page that is made
anew without new results does not change. Plotly's charts need a script or a browser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

Curve = Mapping[int, float]
"""Shares, 0 to 1, by step."""

MAX_POINTS = 120
"""Of a line; a point of a longer one is the mean of several steps."""
_MAX_POINTS_IN_ALL = 2500
"""Of seeds; with the means, and 12 bytes each, a picture of at most 40 kB."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which the colour-blind tell apart; by arm, over again after the last."""
_WIDTH, _HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 34, 40
_N_TICKS = 6
_ENTRIES, _ENTRY_HEIGHT = 3, 18
"""Arms in a row of the legend, which grows upwards."""


Key = TypeVar("Key")


def together(curves: Mapping[Key, Curve]) -> int:
    """How many steps in a row one point must stand for, so that the picture stays small."""
    last = max((step for curve in curves.values() for step in curve), default=0)
    at_most = min(MAX_POINTS, _MAX_POINTS_IN_ALL // max(1, len(curves)))
    return math.ceil(last / at_most) or 1


def thinned(curves: Mapping[Key, Curve], width: int) -> dict[Key, Curve]:
    """Means of `width` steps in a row, each at the last of them."""
    return {name: _means(curve, width) for name, curve in curves.items()}


def _means(curve: Curve, width: int) -> Curve:
    groups: dict[int, list[float]] = {}
    for step, value in curve.items():
        groups.setdefault(math.ceil(step / width) * width, []).append(value)
    return {step: fmean(values) for step, values in groups.items()}


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean at the steps that all have: a seed that lags behind does not bend it."""
    common = set.intersection(*(set(curve) for curve in curves)) if curves else set()
    return {step: fmean(curve[step] for curve in curves) for step in sorted(common)}


def draw(arms: Mapping[str, Sequence[Curve]], what: str) -> str:
    """Each arm's mean as a thick line, and each of its seeds as a thin one.

    Args:
        arms: curves by arm, one for each seed that has one.
        what: the shares are of; the picture's title.
    """
    every = [curve for curves in arms.values() for curve in curves]
    last = max((step for curve in every for step in curve), default=1)
    top = max((value for curve in every for value in curve.values()), default=0.0)
    x_ticks = _ticks(last, whole=True)
    y_ticks = _ticks(max(top, 0.01), whole=False)
    scale = _Scale(x_max=max(last, 1), y_max=y_ticks[-1])
    above = _ENTRY_HEIGHT * ((len(arms) - 1) // _ENTRIES)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-above} {_WIDTH} {_HEIGHT + above}" '
        'font-family="sans-serif" font-size="12" fill="#333">',
        f"<title>{what}</title>",
        f'<path d="M0 {-above}H{_WIDTH}V{_HEIGHT}H0z" fill="#fff"/>',  # GitHub's page may be dark
        *_axes(scale, x_ticks, y_ticks),
    ]
    for number, curves in enumerate(arms.values()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += [_line(scale, curve, colour, width=1, opacity=0.45) for curve in curves]
    for number, (name, curves) in enumerate(arms.items()):  # means lie over all seeds
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(_line(scale, mean_curve(curves), colour, width=3, opacity=1))
        row, column = divmod(number, _ENTRIES)
        x = _LEFT + column * (_WIDTH - _LEFT - _RIGHT) // _ENTRIES
        parts.append(_entry(x, 20 - above + _ENTRY_HEIGHT * row, name, len(curves), colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Scale:
    """From steps and shares to places in the picture."""

    def __init__(self, *, x_max: float, y_max: float) -> None:
        self._x_unit = (_WIDTH - _LEFT - _RIGHT) / x_max
        self._y_unit = (_HEIGHT - _TOP - _BOTTOM) / y_max

    def x(self, step: float) -> float:
        return round(_LEFT + step * self._x_unit, 1)

    def y(self, share: float) -> float:
        return round(_HEIGHT - _BOTTOM - share * self._y_unit, 1)


def _ticks(maximum: float, *, whole: bool) -> list[float]:
    """Round numbers from 0: up to the maximum if they are steps (`whole`), else past it."""
    rough = maximum / (_N_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    size = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= rough * 0.999)
    size = max(1.0, size) if whole else size
    n = math.floor(maximum / size) if whole else math.ceil(maximum / size - 1e-9)
    return [round(size * number, 6) for number in range(n + 1)]


def _axes(scale: _Scale, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    for share in y_ticks:
        y = scale.y(share)
        yield f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{share * 100:g}%</text>'
    for step in x_ticks:
        yield f'<text x="{scale.x(step)}" y="{bottom + 16}" text-anchor="middle">{step:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:g}" y="{_HEIGHT - 6}" text-anchor="middle">training step</text>'


def _line(scale: _Scale, curve: Curve, colour: str, *, width: int, opacity: float) -> str:
    points = " ".join(f"{scale.x(step):g},{scale.y(curve[step]):g}" for step in sorted(curve))
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
        f'stroke-opacity="{opacity:g}" stroke-linejoin="round"/>'
    )


def _entry(x: int, y: int, name: str, n_seeds: int, colour: str) -> str:
    """An arm's line in the legend, above the chart."""
    said = f"{name}, mean of {n_seeds} seeds" if n_seeds > 1 else f"{name}, one seed"
    return (
        f'<path d="M{x} {y - 4}h20" stroke="{colour}" stroke-width="3"/>'
        f'<text x="{x + 26}" y="{y}">{said}</text>'
    )
