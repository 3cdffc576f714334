"""Measured pass rates of a model by problem, to train on problems that it can learn from."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coding_model_project import strict_json
from coding_model_project.data.training.mixing import T
from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra
from coding_model_project.storage.fetching import on_disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The pass rate of a problem: `passed` of the `judged` samples passed every hidden test."""

    id: str
    passed: int
    judged: int
    rate: float
    low: float
    high: float
    """With `low`, the bounds of Wilson's 95% interval (1927), which also holds for few samples."""

    @classmethod
    def of(cls, problem: str, passed: int, judged: int) -> Rate:
        """Return the rate of `passed` in `judged` samples, of which there must be at least one."""
        with extra("stats"):
            from scipy import stats
        bounds: Any = stats.binomtest(passed, judged).proportion_ci(method="wilson")
        return cls(
            id=problem,
            passed=passed,
            judged=judged,
            rate=passed / judged,
            low=float(bounds.low),
            high=float(bounds.high),
        )


def write_rates(path: Path, rates: Sequence[Rate]) -> None:
    """Write one JSON line per problem, easiest first, usable as an order (`data rows --order`)."""
    easiest_first = sorted(rates, key=lambda rate: (-rate.rate, rate.id))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text("".join(f"{json.dumps(asdict(rate))}\n" for rate in easiest_first))
    partial.replace(path)


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
    try:
        lines = on_disk(path).read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"--rates: {path}: {error.strerror}; `data rates` writes one") from error
    rates = {}
    for number, line in enumerate(lines, 1):
        try:
            row = strict_json.loads(line)
            judged = float(row.get("judged", 1))
            rates[str(row["id"])] = float(row["rate"]) * judged, judged
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"--rates: {path}:{number}: expected an object with id and rate"
            ) from error
    return rates


def within(
    problems: Sequence[T],
    rates: Mapping[str, float],
    low: float,
    high: float,
    others: Collection[str] = (),
) -> tuple[list[T], dict[str, int]]:
    """Keep problems whose pass rate is from `low` to `high`, inclusive.

    Args:
        others: ids of known problems that do not train, such as those of another split.

    Returns:
        The problems, and the numbers of those left out, by reason.

    Raises:
        ConfigError: no problem has a rate, or none is within the bounds.
    """
    known = [problem for problem in problems if problem.id in rates]
    if not known and (untrained := [name for name in rates if name in others]):
        raise ConfigError(
            f"--rates: it has rates only of problems that do not train, such as {untrained[0]}; expected "
            f"rates of training problems, such as {problems[0].id}, from `data rates`"
        )
    if not known:
        of = next(iter(rates), "nothing")
        raise ConfigError(
            f"--rates: a file of another data set: it has {of} and {len(rates) - 1} others, but no rate "
            f"for any of these problems, such as {problems[0].id}"
        )
    kept = [problem for problem in known if low <= rates[problem.id] <= high]
    if not kept:
        raise ConfigError(f"--min-rate, --max-rate: no problem has a rate from {low} to {high}")
    return kept, {
        "no measured rate": len(problems) - len(known),
        f"rate not within {low} to {high}": len(known) - len(kept),
    }
