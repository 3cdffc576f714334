"""Filters of samples: a request's query, and its SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from coding_model_project.reports.tally import ACCEPTED

Condition = tuple[str, list[object]]
"""SQL and the values of its placeholders."""


Number = Annotated[int, Field(ge=0, le=2**53)]
"""Number of a run or step, within SQLite's limit."""


class Filters(BaseModel, frozen=True):
    """Filters that are combined with AND."""

    run: Number | None = None
    split: str | None = None
    step: Number | None = None
    problem: str | None = None
    source: str | None = None
    rate_from: float | None = None
    """Minimum share of accepted samples among the problem's judged samples in its run."""
    rate_to: float | None = None
    error: str | None = None
    """An error type, "accepted", or "*" for any error."""
    text: str | None = None
    """Substring of the problem's or sample's name."""
    page: int = Field(0, ge=0, le=1_000_000)

    def of_groups(self) -> Condition:
        """Return the condition on groups (a problem at a step)."""
        names = ("run", "split", "step", "problem", "source")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        parts: list[Condition] = [(f"{name} = ?", [value]) for name, value in given.items()]
        if self.rate_from is not None or self.rate_to is not None:
            low = 0.0 if self.rate_from is None else self.rate_from
            high = 1.0 if self.rate_to is None else self.rate_to
            rated = "SELECT run, problem FROM sample GROUP BY run, problem"
            between = f"(run, problem) IN ({rated} HAVING avg(passed) BETWEEN ? AND ?)"
            parts.append((between, [low, high]))
        return _all(parts)

    def of_samples(self) -> Condition:
        """Return the condition on samples within groups."""
        parts: list[Condition] = []
        if self.error == ACCEPTED:
            parts.append(("error IS NULL", []))
        elif self.error == "*":
            parts.append(("error IS NOT NULL", []))
        elif self.error is not None:
            parts.append(("error IS ?", [self.error]))
        if self.text:
            parts.append(("instr(lower(problem || ' ' || sample), lower(?)) > 0", [self.text]))
        return _all(parts)


def _all(parts: Sequence[Condition]) -> Condition:
    sql = " AND ".join(sql for sql, _ in parts) or "1"
    return sql, [value for _, values in parts for value in values]
