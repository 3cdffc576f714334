"""Days of publication: a window of them, and a model's training cut-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Self

from coding_model_project.errors import ConfigError
from coding_model_project.types import Problem


def day(text: str | None, key: str) -> str | None:
    """Check a day such as "2024-08-01".

    Raises:
        ConfigError: the text is not a day; names the key.
    """
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ConfigError(
            f"coding.evaluation.{key}={text}: expected a day such as 2024-08-01"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The days from `first` to `last`, both inclusive; None is unbounded."""

    first: str | None = None
    last: str | None = None

    @classmethod
    def parse(cls, first: str | None, last: str | None) -> Self:
        """Create a window from two days.

        Raises:
            ConfigError: a text is not a day, or the last day is before the first.
        """
        window = cls(first=day(first, "from_date"), last=day(last, "to_date"))
        if window.first and window.last and window.last < window.first:
            raise ConfigError(
                f"coding.evaluation.to_date={last}: must not be before from_date={first} (--from, --to)"
            )
        return window

    def cut(self, problems: Sequence[Problem], name: str) -> tuple[Problem, ...]:
        """Return the problems published in the window.

        Raises:
            ConfigError: a problem has no date, or no problem is left; names the data set.
        """
        if self.first is None and self.last is None:
            return tuple(problems)
        days = sorted(problem.date for problem in problems if problem.date is not None)
        if len(days) < len(problems):
            raise ConfigError(
                f"{name}: {len(problems) - len(days)} of {len(problems)} problems have no date, so "
                "--from and --to cannot be used; livecodebench has dates"
            )
        low, high = self.first or days[0], self.last or days[-1]
        kept = tuple(one for one in problems if one.date is not None and low <= one.date <= high)
        if not kept:
            ends = (("--from", self.first), ("--to", self.last))
            given = " ".join(f"{option} {end}" for option, end in ends if end)
            raise ConfigError(
                f"{name}: no problems within {given}; its problems are from {days[0]} to {days[-1]}"
            )
        return kept
