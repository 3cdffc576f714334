"""What every loader is: where a data set is published, and how one of its rows becomes a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from coding_model_project.data.problem_rows import missing_field
from coding_model_project.errors import DataError
from coding_model_project.types import Problem

Row = Mapping[str, Any]
Located = tuple[str, Row]
"""A row, after where it stands ("file.jsonl:3")."""


class Unusable(Exception):
    """Why one row cannot become a problem. Ends as a `SetAside`, never leaves this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A row that cannot be used, counted rather than dropped in silence."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A data set as problems, and what of it could not be used."""

    name: str
    problems: tuple[Problem, ...]
    set_aside: tuple[SetAside, ...] = ()
    origin: str = ""
    """The files or the hub revision that it came from."""
    notes: tuple[str, ...] = ()
    """What the user should know, such as a row count that is not the published one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece that is published by itself: a file, or a split on the hub."""

    split: str | None
    """None where the rows themselves say."""
    files: tuple[str, ...]
    """Patterns of file names below the data folder, the first that matches wins."""
    n_rows: int | None = None
    config: str | None = None
    hub_split: str | None = None
    hub_file: str | None = None
    """For repositories that the hub cannot convert: the raw file to fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A data set as its publisher has it."""

    name: str
    licence: str
    fields: tuple[str, ...]
    """Columns without which this is another data set."""
    parts: tuple[Part, ...]
    optional: tuple[str, ...] = ()
    hub: str | None = None
    revision: str | None = None
    """The pinned commit or ref; None takes the newest and records which that was."""
    whole: bool = True
    """All parts must be there; else those that are found."""
    tests: str = ""
    """The kind of tests, in words, for the table of data sets."""
    splits: tuple[str, ...] = ()
    """Its splits where `parts` do not say them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look, in this order: `path`, then `data_dir`, then the hub."""

    path: str | Path | None = None
    data_dir: Path = Path("data")
    revision: str | None = None
    """In the place of the pinned one."""
    split: str | None = None
    hub: bool = True
    """Whether to look on the hub at all."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Other names of columns in the file at `path`: field → column."""


@dataclass(slots=True, kw_only=True)
class Trail:
    """What a stream met on its way: complete once the stream has ended."""

    origins: list[str]
    notes: list[str]


class Loader(Protocol):
    """Reads one data set. `loaders.LOADERS` maps names to them."""

    @property
    def published(self) -> Published: ...

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """Its problems and unusable rows, one at a time.

        Raises:
            ConfigError: it is nowhere to be found; says where was looked.
            DataError: a file is damaged, or is not this data set; names file and line.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderByName:
    """A loader whose code is in a room above this one: imported once rows are asked for."""

    published: Published
    source: str
    """"package.module:function", called with the data set's name and `Loader.items`'s arguments."""

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `Loader.items`."""
        yield from resolve_name(self.source)(self.published.name, place, trail)


ToProblem = Callable[[Row, Part, int], Problem]
"""Row, part and the row's number in it to a problem; raises `Unusable`."""


def check_schema(where: str, row: object, published: Published) -> Row:
    """The row, known to hold every required column.

    Raises:
        DataError: names the column that is missing.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: not an object but {type(row).__name__}")
    missing = [name for name in published.fields if name not in row]
    if missing:
        expected = f"rows of {published.name} hold {', '.join(published.fields)}"
        raise DataError(f"{where}: {missing_field(missing[0], row, expected)}")
    return row


def renamed(where: str, row: Row, columns: Mapping[str, str]) -> Row:
    """The row with the columns that the user mapped also under the names of their fields.

    Raises:
        DataError: a column is missing; names those that are there.
    """
    for name, column in columns.items():
        if column not in row:
            raise DataError(
                f"{where}: --map {name}={column}: there is no column {column!r}; row has columns "
                + ", ".join(map(str, row))
            )
    return {**row, **{name: row[column] for name, column in columns.items()}}


# ── fields ────────────────────────────────────────────────────────────────────────────────────────


def text(row: Row, field: str) -> str:
    """A field that must be text.

    Raises:
        Unusable: it is not.
    """
    value = row.get(field)
    if not isinstance(value, str):
        raise Unusable(f"field '{field}' is not text")
    return value.replace("\r\n", "\n")


def texts(row: Row, field: str) -> tuple[str, ...]:
    """A field that must be a list of texts; null and absent are empty.

    Raises:
        Unusable: it is not.
    """
    value = row.get(field)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise Unusable(f"field '{field}' is not a list of texts")
    return tuple(item.replace("\r\n", "\n") for item in value)


def number(row: Row, field: str) -> float | None:
    """A field that is a number or null.

    Raises:
        Unusable: it is something else.
    """
    value = row.get(field)
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise Unusable(f"field '{field}' is not a number")
