"""A loader that finds the files of a data set, validates them, and converts rows into problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders.base import (
    BAD_ROW,
    IGNORED,
    Located,
    Part,
    Place,
    Published,
    Row,
    SetAside,
    ToProblem,
    Trail,
    Unusable,
)
from coding_model_project.data.loaders.checks import checked
from coding_model_project.data.loaders.files import read_rows
from coding_model_project.data.loaders.remote import hub_revision, hub_rows
from coding_model_project.data.loaders.rows import has_column, value_at
from coding_model_project.data.problem_rows import missing_field
from coding_model_project.data.problems import from_file
from coding_model_project.data.row_readers import Malformed
from coding_model_project.errors import ConfigError, DataError, DownloadError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Problem

UNKNOWN_SPLIT = "unknown"
NO_COLUMNS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLoader:
    """See `base.Loader`.

    Row counts are compared with the published ones. A copy found by its publisher's file name, or on the
    hub, must be complete. A file given by `--path` may be a part, which causes a note.
    """

    published: Published
    to_problem: ToProblem
    only_split: str | None = None
    """The only split to keep, for a name that is one split of a set."""
    n_problems: int | None = None
    """The published number of rows of `only_split`."""
    once: bool = False
    """True if rows may repeat a problem's id: the first is loaded, and the others are set aside."""
    resolve: Callable[[Published, str | None], str] = hub_revision
    download: Callable[[Published, Part, str], Iterator[Located]] = hub_rows

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `base.Loader.items`."""
        wanted = self.only_split or (split_word(place.split) if place.split else None)
        if place.path is not None:
            sources = [(self._part_of(place.path, wanted), [on_disk(place.path)])]
        else:
            sources = self._found(place.data_dir, wanted)
        if not sources:
            yield from self._from_hub(place, wanted, trail)
            return
        n_kept = 0
        for part, paths in sources:
            trail.origins += map(str, paths)
            columns = (*self._columns(), *place.columns.values())
            rows = (row for path in paths for row in read_rows(path, columns))
            counted = _Counted(rows)
            for item in self._problems(counted, part, wanted, place.columns):
                n_kept += 1
                yield from_file(item, paths[0]) if isinstance(item, Problem) else item
            self._check_count(part, counted.n, place, trail)
        if self.n_problems is not None and n_kept != self.n_problems:
            trail.notes.append(
                f"{n_kept} rows of {self.published.name}, {self.n_problems} published"
            )

    def _columns(self) -> tuple[str, ...]:
        return self.published.fields + self.published.optional

    def _problems(
        self,
        rows: Iterator[Located],
        part: Part,
        wanted: str | None,
        columns: Mapping[str, str] = NO_COLUMNS,
    ) -> Iterator[Problem | SetAside]:
        known: set[str] = set()
        is_first = True
        for number, (where, found) in enumerate(rows):
            if isinstance(found, SetAside):
                yield found
                continue
            row = found
            if is_first:
                _check_columns(where, row, columns)
            row = _renamed(row, columns) if columns else found
            if is_first:
                _check_schema(where, row, self.published)
            is_first = False
            item = self._problem(where, row, part, number)
            if self.once and isinstance(item, Problem):
                if item.id in known:
                    item = SetAside(where=where, reason="a problem that an earlier row holds")
                else:
                    known.add(item.id)
            if isinstance(item, SetAside) or wanted in (None, item.split):
                yield item

    def _problem(self, where: str, row: Row, part: Part, number: int) -> Problem | SetAside:
        try:
            problem = checked(self.to_problem(row, part, number), tolerant=True)
        except (Unusable, Malformed) as reason:
            return SetAside(where=where, reason=str(reason))
        except BAD_ROW as error:
            reason = f"a field has another form than published: {type(error).__name__}: {error}"
            return SetAside(where=where, reason=" ".join(reason.split())[:200])
        return problem

    def _found(self, data_dir: Path, wanted: str | None) -> list[tuple[Part, list[Path]]]:
        """Return the parts under the data folder.

        Raises:
            ConfigError: some exist and others are missing.
        """
        parts = [part for part in self.published.parts if _may_hold(part, wanted)]
        found = [(part, matching(data_dir, part, self.published)) for part in parts]
        missing = [part for part, paths in found if not paths]
        present = [(part, paths) for part, paths in found if paths]
        if missing and present and self.published.whole:
            raise ConfigError(
                f"{self.published.name}: found {present[0][1][0]}, but none of "
                f"{', '.join(missing[0].files)} under {data_dir}; add them, or pass one file: "
                f"{self.published.name}=PATH"
            )
        return present

    def _part_of(self, path: str | Path, wanted: str | None) -> Part:
        """Return the part of a file given by its path, from its name and the requested split.

        If neither determines the split, it is "unknown", which may not train.
        """
        parts = [part for part in self.published.parts if _may_hold(part, wanted)]
        pure = Path(str(path))
        fitting = [p for p in parts if any(pure.match(Path(file).name) for file in p.files)]
        if fitting:
            return fitting[0]
        words = {split_word(word) for word in re.split(r"[^a-z]+", pure.name.lower())}
        named = [part for part in parts if {part.split, part.hub_split} & words] or parts
        splits = {part.split for part in named}
        split = splits.pop() if len(splits) == 1 else wanted or UNKNOWN_SPLIT
        config = named[0].config if len(named) == 1 else None
        return Part(split=split, files=(), config=config)

    def _from_hub(
        self, place: Place, wanted: str | None, trail: Trail
    ) -> Iterator[Problem | SetAside]:
        parts = [part for part in self.published.parts if _may_hold(part, wanted)]
        if self.published.hub is None and not any(part.files for part in self.published.parts):
            raise ConfigError(
                f"{self.published.name}: this form has no file of its own; pass their file: "
                f"{self.published.name}=PATH"
            )
        looked = parts[0].files[:2] if parts else ()
        name = self.published.name + (f"_{wanted}" if wanted and not self.only_split else "")
        fetch = ""
        if self.published.hub is not None:
            clone = place.data_dir / self.published.hub.split("/")[-1]
            fetch = f" (hf download {self.published.hub} --repo-type dataset --local-dir {clone})"
        absent = (
            f"{name}: not found under {place.data_dir} (as {' or '.join(looked)}); add it{fetch}, or "
            f"pass its file ({name}=PATH) or its folder (--data-dir)"
        )
        if self.published.hub is None or not place.hub:
            raise ConfigError(absent)
        revision = place.revision or self.published.revision
        with _with_places_searched(absent):
            revision = self.resolve(self.published, revision)
        trail.origins.append(f"{self.published.hub}@{revision}")
        for part in parts:
            with _with_places_searched(absent):
                counted = _Counted(self.download(self.published, part, revision))
                first = list(islice(counted, 1))
            rows = chain(first, counted)
            yield from self._problems(rows, part, wanted)
            self._check_count(part, counted.n, place, trail)

    def _check_count(self, part: Part, n_rows: int, place: Place, trail: Trail) -> None:
        if part.n_rows in (None, n_rows):
            return
        split = f" {part.split}" if part.split else ""
        note = f"{self.published.name}{split}: {n_rows} rows, {part.n_rows} published"
        if place.path is None and place.revision is None:
            raise DataError(f"{note}; to load an incomplete file, pass {self.published.name}=PATH")
        trail.notes.append(note)


@contextmanager
def _with_places_searched(absent: str) -> Iterator[None]:
    """Add the other places searched to errors of the hub."""
    try:
        yield
    except (ConfigError, DownloadError) as error:
        raise type(error)(f"{absent}: {error}") from error


class _Counted:
    """An iterator that counts its rows."""

    def __init__(self, rows: Iterator[Located]) -> None:
        self._rows = rows
        self.n = 0

    def __iter__(self) -> Iterator[Located]:
        return self

    def __next__(self) -> Located:
        row = next(self._rows)
        self.n += 1
        return row


def _may_hold(part: Part, wanted: str | None) -> bool:
    return wanted is None or part.split in (None, wanted)


def matching(data_dir: Path, part: Part, published: Published) -> list[Path]:
    """Return the files of the first pattern that matches, also within a clone of the hub's repository."""
    folders = [data_dir]
    if published.hub is not None:
        owner_and_name = published.hub.split("/")
        folders += [data_dir / owner_and_name[-1], data_dir.joinpath(*owner_and_name)]
        folders.append(data_dir / owner_and_name[0])
    for pattern in part.files:
        for folder in folders:
            if paths := sorted(folder.glob(pattern)):
                return paths if "*" in pattern else paths[:1]
    return []


def _check_schema(where: str, row: object, published: Published) -> None:
    """Raise if a row lacks a required column.

    Raises:
        DataError: a column is missing; names it.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: not an object but {type(row).__name__}")
    missing = [name for name in published.fields if not _has(row, name)]
    if missing:
        expected = f"rows of {published.name} hold {', '.join(published.fields)}"
        raise DataError(f"{where}: {missing_field(missing[0], row, expected)}")


def _has(row: Row, column: str) -> bool:
    return any(has_column(row, one) for one in column.split("|"))


def _check_columns(where: str, row: Row, columns: Mapping[str, str]) -> None:
    """Raise if a mapped column is missing.

    Raises:
        DataError: a column is missing; names the existing ones.
    """
    for name, column in columns.items():
        if column != IGNORED and not has_column(row, column):
            raise DataError(
                f"{where}: --map {name}={column}: no column {column!r}; the row has columns "
                + ", ".join(map(str, row))
            )


def _renamed(row: Row, columns: Mapping[str, str]) -> Row:
    """Return a row with the mapped columns also under the names of their fields."""
    found = {name: value_at(row, column) for name, column in columns.items() if column != IGNORED}
    ignored = {name: None for name, column in columns.items() if column == IGNORED}
    return {**row, **ignored, **found}
