"""Measured pass rates of a model by problem, to train on problems that it can learn from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project import strict_json
from coding_model_project.atomic import write_lines
from coding_model_project.data.json_files import read_lines
from coding_model_project.data.quality.rates import Rate
from coding_model_project.errors import ConfigError


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
