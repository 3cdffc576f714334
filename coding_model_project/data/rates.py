"""Shares with confidence intervals, and files of a model's measured pass rates by problem."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

from coding_model_project import strict_json
from coding_model_project.atomic import write_lines
from coding_model_project.data.files import read_lines
from coding_model_project.errors import ConfigError

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


# ── files of rates ─────────────────────────────────────────────────────────────────────────────────


def write_rates(path: Path, rates: Mapping[str, Rate]) -> None:
    """Write one JSON line per problem, easiest first, usable as an order (`data rows --order`).

    low and high are the bounds of Wilson's 95% interval (1927), which also holds for few samples.
    """
    rows: list[dict[str, Any]] = [
        {
            "id": name,
            "passed": rate.hits,
            "judged": rate.total,
            "rate": rate.hits / rate.total,
            "low": rate.interval[0],
            "high": rate.interval[1],
        }
        for name, rate in rates.items()
    ]
    write_lines(path, sorted(rows, key=lambda row: (-row["rate"], row["id"])))


def read_rates(path: str | Path) -> dict[str, float]:
    """Read the pass rate of each problem by its id.

    Raises:
        ConfigError: the file is missing or not a file of rates.
    """
    return {name: passed / judged for name, (passed, judged) in read_samples(path).items()}


def read_samples(path: str | Path) -> dict[str, tuple[float, float]]:
    """Read the numbers of passed and of judged samples, by problem.

    Raises:
        ConfigError: the file is missing or not a file of rates.
    """

    def samples(line: str) -> tuple[str, tuple[float, float]]:
        row = strict_json.loads(line)
        judged = float(row["judged"]) if "judged" in row else 1.0
        return str(row["id"]), (float(row["rate"]) * judged, judged)

    expected = "an object with id and rate"
    return dict(
        read_lines(path, samples, option="--rates", expected=expected, command="data rates")
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured pass rates by problem id, and the bounds of those to train on."""

    by_id: Mapping[str, float]
    low: float
    high: float

    def outside(self, ids: Sequence[str], others: Collection[str]) -> dict[str, str]:
        """Return the problems whose pass rate is not within the bounds, with the reason.

        Args:
            others: ids of known problems that do not train, such as those of another split.

        Raises:
            ConfigError: no problem has a rate, or none is within the bounds.
        """
        rates, low, high = self.by_id, self.low, self.high
        known = [name for name in ids if name in rates]
        if not known and (untrained := [name for name in rates if name in others]):
            raise ConfigError(
                f"--rates: it has rates only of problems that do not train, such as {untrained[0]}; "
                f"expected rates of training problems, such as {ids[0]}, from `data rates`"
            )
        if not known:
            of = next(iter(rates), "nothing")
            raise ConfigError(
                f"--rates: a file of another data set: it has {of} and {len(rates) - 1} others, but no "
                f"rate for any of these problems, such as {ids[0]}"
            )
        out = {name: "no measured rate" for name in ids if name not in rates}
        for name in known:
            if not low <= rates[name] <= high:
                out[name] = f"rate not within {low} to {high}"
        if len(out) == len(ids):
            raise ConfigError(f"--min-rate, --max-rate: no problem has a rate from {low} to {high}")
        return out
