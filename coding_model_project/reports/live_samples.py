"""A table of runs' samples, read from files that grow or rotate; texts stay on disk until opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
from pydantic import BaseModel, Field

from coding_model_project.data.training.rows import source_of
from coding_model_project.errors import DataError
from coding_model_project.evaluation.outputs import UNGRADABLE
from coding_model_project.reports.chart_lines import ACCEPTED, RunTally
from coding_model_project.runs.rollouts import ROLLOUTS, Rollout, full_file

Place = tuple[int, int, int]
"""Number of a sample's file, and the offset and bytes of its line there."""


class WrittenAnewError(Exception):
    """Raised if a file was replaced since a part of it was read, which invalidates that part."""


@dataclass(slots=True)
class GrowingFile:
    """A file of JSON lines that others append to; an incomplete last line is read later."""

    path: Path
    end: int = 0
    """Number of bytes read."""
    inode: int = 0

    def new_lines(
        self, unless: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, int, Any]]:
        """Read new lines (offset, bytes, value); none if the file is missing.

        Args:
            unless: called once the file is open; if true, nothing is read.

        Raises:
            WrittenAnewError: the file was replaced or truncated.
        """
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            if unless():
                return
            found = os.fstat(file.fileno())
            if self.end and (found.st_ino != self.inode or found.st_size < self.end):
                raise WrittenAnewError
            self.inode = found.st_ino
            yield from self.lines_of(file)

    def lines_of(self, file: BinaryIO) -> Iterator[tuple[int, int, Any]]:
        """Read new lines from an open file with the same content."""
        file.seek(self.end)
        for line in file:
            if not line.endswith(b"\n"):
                return
            start, self.end = self.end, self.end + len(line)
            with suppress(orjson.JSONDecodeError):  # truncated by a kill
                yield start, len(line), orjson.loads(line)


@dataclass(slots=True)
class Log:
    """A reader of a run's rollouts.jsonl and its full files."""

    folder: Path
    _number: int = 1
    """Number that the file which is read has once it is full."""
    _file: GrowingFile = field(init=False)

    def __post_init__(self) -> None:
        self._file = GrowingFile(self.folder / ROLLOUTS)

    def new_rows(self) -> Iterator[tuple[Place, Rollout]]:
        """Read the samples written since the last call.

        Raises:
            WrittenAnewError: a file was replaced; start again with a new log.
            DataError: a line is not a sample.
        """
        while (full := full_file(self.folder, self._number)).exists():
            with full.open("rb") as file:
                yield from self._rows(self._file.lines_of(file))
            self._number += 1
            self._file = GrowingFile(self._file.path)
        # If it is renamed just now, the next call continues in the full file.
        yield from self._rows(self._file.new_lines(unless=full.exists))

    def _rows(self, lines: Iterator[tuple[int, int, Any]]) -> Iterator[tuple[Place, Rollout]]:
        for start, size, row in lines:
            try:
                yield (self._number, start, size), Rollout(**row)
            except TypeError as error:
                raise DataError(f"{self._file.path}, byte {start}: damaged ({error})") from error

    def read(self, place: Place) -> Rollout:
        """Read one sample again."""
        number, start, size = place
        full = full_file(self.folder, number)
        with (full if full.exists() else self._file.path).open("rb") as file:
            file.seek(start)
            return Rollout(**orjson.loads(file.read(size)))


# ── the table of samples ───────────────────────────────────────────────────────────────────────────

PAGE = 50
"""Maximum rows of a response."""
_TABLE = """
CREATE TABLE sample (
    run INTEGER, split TEXT, step INTEGER, problem TEXT, source TEXT, sample TEXT,
    error TEXT, passed INTEGER, reward REAL, tokens INTEGER, place BLOB
);
CREATE INDEX by_step ON sample (run, split, step, problem);
CREATE INDEX by_problem ON sample (run, problem, passed);
"""
_INSERT = "INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_STEP = "run, split, step"
_GROUP = f"{_STEP}, problem, source"
_RATE = """, (
    SELECT avg(passed) FROM sample WHERE run = found.run AND problem = found.problem
) AS rate"""


@dataclass(slots=True)
class _Run:
    log: Log
    tally: RunTally = field(default_factory=RunTally)
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    """Last attempt at each step of a split; samples of earlier attempts are dropped."""


class SampleIndex:
    """An index of runs' samples by number of the run. `refresh` adds new samples."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(folders)
        self._runs = [_Run(Log(folder)) for folder in folders]
        self._database = sqlite3.connect(":memory:")
        self._database.row_factory = sqlite3.Row
        self._database.executescript(_TABLE)

    def refresh(self) -> None:
        """Read samples written since the last call, one at a time.

        Raises:
            DataError: a line is not a sample.
        """
        for number, folder in enumerate(self._folders):
            try:
                self._add_new(number)
            except WrittenAnewError:
                self._database.execute("DELETE FROM sample WHERE run = ?", [number])
                self._runs[number] = _Run(Log(folder))
                self._add_new(number)

    @property
    def n(self) -> int:
        return sum(tally.n for tally in self.tallies)

    @property
    def changes(self) -> int:
        """Counter that grows with every added or removed sample."""
        return self._database.total_changes

    @property
    def tallies(self) -> list[RunTally]:
        """Tallies of the runs, for their charts."""
        return [run.tally for run in self._runs]

    def values(self, column: str) -> list[str]:
        """Return all values of a column, for a filter's choices."""
        rows = self._database.execute(f"SELECT DISTINCT {column} FROM sample ORDER BY 1")
        return [value for (value,) in rows if value is not None]

    def steps(self, filters: Filters) -> dict[str, Any]:
        """Return a page of steps, last first."""
        return self._grouped(_STEP, filters)

    def groups(self, filters: Filters) -> dict[str, Any]:
        """Return a page of groups (a problem at a step), with the problem's rate in the whole run."""
        return self._grouped(_GROUP, filters, more=_RATE)

    def samples(self, filters: Filters) -> dict[str, Any]:
        """Return a page of samples, last step first."""
        (of_groups, first), (of_samples, then) = filters.of_groups(), filters.of_samples()
        return self._page(
            "SELECT run, split, step, problem, sample, error, reward, tokens, count(*) OVER () AS of "
            f"FROM sample WHERE {of_groups} AND {of_samples} ORDER BY step DESC, run, split, rowid",
            [*first, *then],
            filters.page,
        )

    def sample(self, run: int, split: str, step: int, problem: str, sample: str) -> Rollout | None:
        """Read a sample from disk, or return None if it does not exist."""
        row = self._database.execute(
            "SELECT place FROM sample WHERE (run, split, step, problem, sample) = (?, ?, ?, ?, ?)",
            [run, split, step, problem, sample],
        ).fetchone()
        return self._runs[run].log.read(orjson.loads(row["place"])) if row else None

    def _grouped(self, keys: str, filters: Filters, *, more: str = "") -> dict[str, Any]:
        """Return counts over all samples of each group with matching samples."""
        (of_groups, first), (of_samples, then) = filters.of_groups(), filters.of_samples()
        return self._page(
            f"SELECT {keys}, count(*) AS n, count(passed) AS judged, sum(passed) AS passed, "
            f"avg(reward) AS reward, sum({of_samples}) AS found, count(DISTINCT problem) AS problems, "
            f"count(*) OVER () AS of FROM sample WHERE {of_groups} GROUP BY {keys} HAVING found > 0 "
            f"ORDER BY step DESC, {keys}",
            [*then, *first],
            filters.page,
            more,
        )

    def _page(self, sql: str, values: list[object], page: int, more: str = "") -> dict[str, Any]:
        """Return a page of rows, with `more` columns computed only for these rows."""
        sql = f"SELECT *{more} FROM ({sql} LIMIT {PAGE} OFFSET {page * PAGE}) AS found"
        found = self._database.execute(sql, values)
        rows = [dict(row) for row in found]
        return {"n": rows[0]["of"] if rows else 0, "size": PAGE, "rows": rows}

    def _add_new(self, number: int) -> None:
        for place, row in self._runs[number].log.new_rows():
            try:
                self._add(number, place, row)
            except (TypeError, ValueError, AttributeError, OverflowError, sqlite3.Error) as error:
                where = f"{self._folders[number]}: sample {row.sample} of {row.problem}"
                raise DataError(f"{where}: damaged ({error})") from error

    def _add(self, number: int, place: Place, row: Rollout) -> None:
        run = self._runs[number]
        step = row.split, row.step
        last = run.attempts.setdefault(step, row.attempt)
        if row.attempt < last:
            return
        if row.attempt > last:
            run.attempts[step] = row.attempt
            run.tally.forget(*step)
            self._database.execute(
                "DELETE FROM sample WHERE (run, split, step) = (?, ?, ?)", [number, *step]
            )
        run.tally.add(row)
        error = row.verdict.get("error")
        is_judged = error != UNGRADABLE
        self._database.execute(
            _INSERT,
            [
                number, row.split, row.step, row.problem, source_of(row.problem), row.sample, error,
                error is None if is_judged else None, row.reward if is_judged else None, row.tokens,
                orjson.dumps(place),
            ],
        )  # fmt: skip


# ── filters ───────────────────────────────────────────────────────────────────────────────────────

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
