"""Shares with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_Z = 1.959963984540054
"""The two-sided 95% quantile of the normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share as two counts, with Wilson's 95% interval (0 to 1 for a total of 0)."""

    hits: int
    total: int

    @property
    def share(self) -> float | None:
        return self.hits / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval, which unlike the normal one stays right at shares of 0 and 1."""
        if not self.total:
            return 0.0, 1.0
        n, p = self.total, self.hits / self.total
        centre = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        low = 0.0 if self.hits == 0 else max(0.0, centre - half)
        return low, 1.0 if self.hits == n else min(1.0, centre + half)

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
