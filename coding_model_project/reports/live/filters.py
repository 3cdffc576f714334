"""Which samples are asked for: the query of a request, and its SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from coding_model_project.reports.tally import ACCEPTED

Condition = tuple[str, list[object]]
"""SQL, and the values of its question marks."""


Number = Annotated[int, Field(ge=0, le=2**53)]
"""Of a run or a step; SQLite refuses larger ones than its own."""


class Filters(BaseModel, frozen=True):
    """Each that is given narrows the choice."""

    run: Number | None = None
    split: str | None = None
    step: Number | None = None
    problem: str | None = None
    source: str | None = None
    rate_from: float | None = None
    """Share of the problem's judged samples in its run that are accepted: its difficulty."""
    rate_to: float | None = None
    error: str | None = None
    """An error type, "accepted", or "*" for any error."""
    text: str | None = None
    """Part of the problem's or the sample's name."""
    page: int = Field(0, ge=0, le=1_000_000)

    def of_groups(self) -> Condition:
        """Return what a problem at a step must fulfil."""
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
        """Return what one of its samples must fulfil besides."""
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
