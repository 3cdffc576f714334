"""Shares with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

_Z = 1.959963984540054
"""The two-sided 95% quantile of the normal distribution."""


def wilson(share: float, total: float) -> tuple[float, float]:
    """Return Wilson's 95% score interval, which unlike the normal one stays right at 0 and 1.

    Args:
        total: the number of observations, which may be an effective one.
    """
    centre = (share + _Z**2 / (2 * total)) / (1 + _Z**2 / total)
    spread = math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    half = _Z / (1 + _Z**2 / total) * spread
    low = 0.0 if share == 0 else max(0.0, centre - half)
    return low, 1.0 if share == 1 else min(1.0, centre + half)


class Sums:
    """A base of dataclasses of numbers, tuples and other sums, which add field by field."""

    __slots__ = ()

    @classmethod
    def summed(cls, parts: Sequence[Self]) -> Self:
        """Return the sum of parts; of none, the defaults."""
        found: dict[str, Any] = {}
        for name in cls.__slots__ if parts else ():
            values = [getattr(part, name) for part in parts]
            match values[0]:
                case tuple():
                    found[name] = tuple(chain.from_iterable(values))
                case Sums():
                    found[name] = type(values[0]).summed(values)
                case _:
                    found[name] = sum(values)
        return cls(**found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Sums):
    """A share as two counts, with Wilson's 95% interval (0 to 1 for a total of 0)."""

    hits: int
    total: int

    @property
    def share(self) -> float | None:
        return self.hits / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval."""
        return wilson(self.hits / self.total, self.total) if self.total else (0.0, 1.0)

    @staticmethod
    def of(flags: Iterable[bool]) -> Rate:
        """Return the share of true flags."""
        known = list(flags)
        return Rate(hits=sum(known), total=len(known))

    def __str__(self) -> str:
        if self.share is None:
            return "none"
        low, high = self.interval
        return f"{self.hits}/{self.total} = {self.share:.2%} ({low:.2%} to {high:.2%})"

    def as_json(self) -> dict[str, object]:
        return {
            "hits": self.hits,
            "total": self.total,
            "share": self.share,
            "wilson95": self.interval,
        }


NONE = Rate(hits=0, total=0)
