"""The protocol of loaders, and the description of a published data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from coding_model_project.config_key import named_callable
from coding_model_project.errors import DataError
from coding_model_project.types import Problem

Row = Mapping[str, Any]


SPLITS = ("train", "validation", "test")
"""Words for splits that every file's name may hold."""

IGNORED = "none"
"""The column of `--map FIELD=none`: the field has none, whatever columns there are."""


class Unusable(Exception):
    """A row that cannot become a problem. Loaders turn it into a `SetAside`."""


class NoTests(Unusable):
    """A row without hidden tests."""


BAD_ROW = (
    KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError, SyntaxError,
    RecursionError, MemoryError,
)  # fmt: skip
"""Errors of converting a row that has another form than its publisher's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """An unusable row, counted instead of dropped silently."""

    where: str
    reason: str


Located = tuple[str, Row | SetAside]
"""A location ("file.jsonl:3") and the row there, if its values are usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The problems of a data set, and its unusable rows."""

    name: str
    problems: tuple[Problem, ...]
    set_aside: tuple[SetAside, ...] = ()
    origin: str = ""
    """The files or the hub revision that it was read from."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as a row count that differs from the published one."""

    def aside(self) -> str:
        """Return the number of unusable rows and the first one's reason; empty without any."""
        if not self.set_aside:
            return ""
        first = self.set_aside[0]
        return f"{len(self.set_aside)} rows set aside (first: {first.where}: {first.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A separately published piece: a file, or a split on the hub."""

    split: str | None
    """Its split; None if each row has its own."""
    files: tuple[str, ...]
    """Patterns of file names below the data folder; the first that matches wins."""
    n_rows: int | None = None
    config: str | None = None
    hub_split: str | None = None
    hub_file: str | None = None
    """The raw file to fetch from a repository that the hub cannot convert."""

    def may_hold(self, split: str | None) -> bool:
        """Return whether it may have rows of a split; None is any."""
        return split is None or self.split in (None, split)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published data set."""

    name: str
    licence: str
    fields: tuple[str, ...]
    """Required columns; a file without them is another data set."""
    parts: tuple[Part, ...]
    optional: tuple[str, ...] = ()
    hub: str | None = None
    revision: str | None = None
    """The pinned commit or ref; None takes the newest commit and records it."""
    whole: bool = False
    """True if all parts are required; False if those that are found suffice."""
    tests: str = ""
    """The kind of tests, in words, for the table of data sets."""
    row_splits: Sequence[str] = ()
    """The splits that its rows name, if `parts` do not."""
    split: str | None = None
    """The only split that is loaded, for a name that is one split of a set."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be loaded; empty if only the rows of a file say so."""
        if self.split is not None:
            return (self.split,)
        named = [part.split for part in self.parts if part.split is not None]
        return tuple(dict.fromkeys(named)) or tuple(self.row_splits)

    def fields_are_in(self, row: Row) -> bool:
        """Return whether a row has all required columns."""
        return all(name in row for name in self.fields)

    def has_columns(self, names: Iterable[str]) -> bool:
        """Return whether one of the names is a column of its rows."""
        return any(name in (*self.fields, *self.optional) for name in names)

    def fetch(self, data_dir: Path) -> str:
        """Return the command that downloads its repository to where a loader finds it."""
        folder = data_dir / (self.hub or "").split("/")[-1]
        return f"hf download {self.hub} --repo-type dataset --local-dir {folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Places to search, in this order: `path`, then `data_dir`, then the hub."""

    path: str | Path | None = None
    data_dir: Path = Path("data")
    split: str | None = None
    """The split to load. It is also the split of a file whose name and rows name none."""
    hub: bool = True
    """True to search the hub too."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column in the file at `path` for each field that has another name there."""


@dataclass(slots=True, kw_only=True)
class Trail:
    """Facts beside the problems of a stream; complete when it has ended."""

    origins: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)


class Loader(Protocol):
    """A reader of one data set. `loaders.LOADERS` maps names to loaders."""

    @property
    def published(self) -> Published: ...

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """Yield its problems and unusable rows, one at a time.

        Raises:
            ConfigError: the set was not found; names the places searched.
            DataError: a file is damaged, or is not this data set; names file and line.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderByName:
    """A loader whose code is in a higher room or the user's; it is imported when rows are read."""

    published: Published
    source: str
    """"package.module:function", called with the data set's name and `Loader.items`'s arguments."""

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `Loader.items`."""
        problems = named_callable(self.published.name, self.source, "package.module:function")
        for one in problems(self.published.name, place, trail):
            if not isinstance(one, Problem | SetAside):
                raise DataError(
                    f"{self.source}: yields a {type(one).__name__}: expected Problem or SetAside"
                )
            yield one


ToProblem = Callable[[Row, Part, int], Problem]
"""A function that converts a row, given its part and its index there; raises `Unusable`."""


# ── fields ────────────────────────────────────────────────────────────────────────────────────────


def text(row: Row, field: str) -> str:
    """Return a field that must be text.

    Raises:
        Unusable: it is not text.
    """
    value = row.get(field)
    if not isinstance(value, str):
        raise Unusable(f"field '{field}' is not text")
    return value.replace("\r\n", "\n")
