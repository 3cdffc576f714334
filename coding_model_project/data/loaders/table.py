"""A loader that finds a set's files here or on the hub, validates them, and converts the rows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders.base import (
    BAD_ROW,
    IGNORED,
    SPLITS,
    Part,
    Place,
    Published,
    Row,
    SetAside,
    ToProblem,
    Trail,
    Unusable,
)
from coding_model_project.data.loaders.files import files_of, read_rows
from coding_model_project.data.loaders.rows import checked
from coding_model_project.data.loaders.values import has_column, value_at
from coding_model_project.data.problem_rows import missing_field
from coding_model_project.data.problems import from_file
from coding_model_project.errors import ConfigError, DataError, DownloadError
from coding_model_project.row_readers import Malformed
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Problem

UNKNOWN_SPLIT = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """A row of a set, and its place."""

    row: Row | SetAside
    where: str
    file: Path
    part: Part
    index: int
    """Its number in the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLoader:
    """See `base.Loader`.

    Row counts are compared with the published ones. A copy found by its publisher's file name, or on the
    hub, must be complete. A file given by `--path` may be a part, which causes a note.
    """

    published: Published
    to_problem: ToProblem
    once: bool = False
    """True if rows may repeat a problem's id: the first is loaded, and the others are set aside."""
    complete: Callable[[TableLoader, Place, Trail], Iterator[Problem | SetAside]] | None = None
    """A function that makes the items from the `converted` rows."""

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `base.Loader.items`."""
        complete = TableLoader.converted if self.complete is None else self.complete
        return complete(self, place, trail)

    def converted(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """Yield the rows as problems, or as set aside; raises as `items`."""
        known: set[str] = set()
        for found in rows_of(self.published, place, trail):
            item = self._converted(found)
            if self.once and isinstance(item, Problem):
                if item.id in known:
                    reason = "a problem that an earlier row holds"
                    item = SetAside(where=found.where, reason=reason)
                else:
                    known.add(item.id)
            yield item

    def _converted(self, found: Found) -> Problem | SetAside:
        if isinstance(found.row, SetAside):
            return found.row
        try:
            problem = self.to_problem(found.row, found.part, found.index)
            return from_file(checked(problem, tolerant=True), found.file)
        except (Unusable, Malformed) as reason:
            return SetAside(where=found.where, reason=str(reason))
        except BAD_ROW as error:
            reason = f"a field has another form than published: {type(error).__name__}: {error}"
            return SetAside(where=found.where, reason=" ".join(reason.split())[:200])


def rows_of(published: Published, place: Place, trail: Trail) -> Iterator[Found]:
    """Yield the rows of a set, the mapped columns also under the names of their fields.

    Raises:
        ConfigError, DataError, DownloadError: see `base.Loader.items`.
    """
    columns = (*published.fields, *published.optional, *place.columns.values())
    mapped = {name: column for name, column in place.columns.items() if column != IGNORED}
    for part, files in _files(published, place, trail):
        index, is_first = -1, True
        located = ((file, *one) for file in files for one in read_rows(file, columns))
        for index, (file, where, row) in enumerate(located):
            if not isinstance(row, SetAside):
                if is_first:
                    _check_columns(where, row, mapped)
                read = {name: value_at(row, column) for name, column in mapped.items()}
                row = {**row, **dict.fromkeys(place.columns), **read} if place.columns else row
                if is_first:
                    _check_schema(where, row, published)
                is_first = False
            yield Found(row, where, file, part, index)
        if part.n_rows not in (None, index + 1):
            split = f" {part.split}" if part.split else ""
            note = f"{published.name}{split}: {index + 1} rows, {part.n_rows} published"
            if place.path is None:
                raise DataError(f"{note}; to load an incomplete file, pass {published.name}=PATH")
            trail.notes.append(note)


def _files(published: Published, place: Place, trail: Trail) -> Iterable[tuple[Part, list[Path]]]:
    """Return each part with its files: those at `place.path`, else local copies, else the hub's."""
    if place.path is not None:
        given = on_disk(place.path)
        trail.origins.append(str(given))
        by_part: dict[Part, list[Path]] = {}
        for file in files_of(given):
            by_part.setdefault(_part_of(published, file, given, place.split), []).append(file)
        return by_part.items()
    parts = [part for part in published.parts if part.may_hold(place.split)]
    copies = [(part, matching(place.data_dir, part, published)) for part in parts]
    missing = [part for part, files in copies if not files]
    present = [(part, files) for part, files in copies if files]
    if not present:
        return _from_hub(published, parts, place, trail)
    if missing and published.whole:
        raise ConfigError(
            f"{published.name}: found {present[0][1][0]}, but none of "
            f"{', '.join(missing[0].files)} under {place.data_dir}; add them, or pass one file: "
            f"{published.name}=PATH"
        )
    trail.origins += [str(file) for _, files in present for file in files]
    return present


def _part_of(published: Published, file: Path, given: Path, wanted: str | None) -> Part:
    """Return the part of a file below a path that the user gave.

    The split is a word of the file's name, else of its folder's, up to the given path; else the split
    that the user named; else the only one of the set. Otherwise it is "unknown", which may not train.
    """
    parts = published.parts
    fitting = [part for part in parts if any(file.match(pattern) for pattern in part.files)]
    if fitting:
        return fitting[0]
    folders = [folder for folder in file.parents if folder.is_relative_to(given)]
    for name in (file.name, *(folder.name for folder in folders)):
        words = {split_word(word) for word in re.split(r"[^a-z]+", name.lower())}
        named = [part for part in parts if {part.split, part.hub_split} & words]
        others = (words & {*SPLITS}) - {part.hub_split for part in parts}
        said = {part.split for part in named} | others
        if len(said) == 1:
            break
    else:
        named, said = parts, {wanted} if wanted else {part.split for part in parts}
    split = said.pop() if len(said) == 1 else UNKNOWN_SPLIT
    configs = {part.config for part in named or parts}
    return Part(split=split, files=(), config=configs.pop() if len(configs) == 1 else None)


def _from_hub(
    published: Published, parts: list[Part], place: Place, trail: Trail
) -> list[tuple[Part, list[Path]]]:
    if published.hub is None and not any(part.files for part in published.parts):
        raise ConfigError(
            f"{published.name}: this form has no file of its own; pass their file: "
            f"{published.name}=PATH"
        )
    split = f"_{place.split}" if place.split and not published.split else ""
    name = f"{published.name}{split}"
    fetch = f" ({published.fetch(place.data_dir)})" if published.hub else ""
    absent = (
        f"{name}: not found under {place.data_dir} (as {' or '.join(parts[0].files[:2])}); add it"
        f"{fetch}, or pass its file ({name}=PATH) or its folder (--data-dir)"
    )
    if published.hub is None or not place.hub:
        raise ConfigError(absent)
    try:
        revision = hub_revision(published)
        found = [(part, hub_files(published, part, revision)) for part in parts]
    except (ConfigError, DownloadError) as error:
        raise type(error)(f"{absent}: {error}") from error
    trail.origins.append(f"{published.hub}@{revision}")
    return found


def matching(data_dir: Path, part: Part, published: Published) -> list[Path]:
    """Return the files of the first pattern that matches, also within a clone of the hub's repository."""
    folders = [data_dir]
    if published.hub is not None:
        owner, name = published.hub.split("/")
        folders += [data_dir / name, data_dir / owner / name, data_dir / owner]
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
    for column in published.fields:
        if not any(has_column(row, one) for one in column.split("|")):
            expected = f"rows of {published.name} hold {', '.join(published.fields)}"
            raise DataError(f"{where}: {missing_field(column, row, expected)}")


def _check_columns(where: str, row: Row, columns: Mapping[str, str]) -> None:
    """Raise if a mapped column is missing.

    Raises:
        DataError: a column is missing; names the existing ones.
    """
    for name, column in columns.items():
        if not has_column(row, column):
            raise DataError(
                f"{where}: --map {name}={column}: no column {column!r}; the row has columns "
                + ", ".join(map(str, row))
            )


# ── downloads of data sets from the Hugging Face hub ──────────────────────────────────────────────


_FIXABLE = (400, 401, 403, 404)
"""HTTP statuses of the hub that the user can fix with another name or a token."""


def hub_files(published: Published, part: Part, revision: str) -> list[Path]:
    """Download the files of a part, at a commit that `hub_revision` returned.

    Raises:
        ConfigError: the repository has no such file, or this user may not read it.
        DownloadError: the hub does not answer.
    """
    from huggingface_hub import snapshot_download

    assert published.hub is not None
    patterns = hub_patterns(published, part)
    with _one_line(published.hub, revision):
        folder = snapshot_download(
            published.hub, repo_type="dataset", revision=revision, allow_patterns=patterns
        )
    for pattern in patterns:
        if files := sorted(Path(folder).glob(pattern)):
            return files
    raise ConfigError(
        f"the hub's {published.hub}@{revision[:12]} has no {' or '.join(patterns)}; download it "
        f"yourself (hf download {published.hub} --repo-type dataset) and pass its file "
        f"({published.name}=PATH)"
    )


def hub_patterns(published: Published, part: Part) -> list[str]:
    """Return patterns of a part's files in its repository, most likely first.

    Local copies have the same names, sometimes prefixed by the repository's.
    """
    if part.hub_file is not None:
        return [part.hub_file]
    repository = f"{(published.hub or '').split('/')[-1]}/"
    split = part.hub_split or part.split
    folders = (part.config or "default", "data") if split else ()
    usual = [f"{folder}/{split}-*.parquet" for folder in folders]
    named = [file.removeprefix(repository) for file in part.files]
    return list(dict.fromkeys([*(one for one in named if "*" in one), *usual, *named]))


def hub_revision(published: Published) -> str:
    """Return the pinned revision's commit, or the newest commit. Fails within seconds if offline.

    Raises:
        ConfigError: the hub has no such data set or revision, or this user may not read it.
        DownloadError: the hub does not answer.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.constants import HF_HUB_OFFLINE
    except ImportError as error:
        raise ConfigError(
            "huggingface_hub, which fetches public data sets, is not installed: "
            "pip install huggingface_hub"
        ) from error
    wanted = published.revision
    if wanted is not None and HF_HUB_OFFLINE:
        return wanted  # offline, it must be in the hub's cache
    with _one_line(published.hub or "", wanted):
        found = HfApi().dataset_info(published.hub or "", revision=wanted, timeout=10)
    return found.sha or wanted or "main"


@contextmanager
def _one_line(repository: str, revision: str | None) -> Iterator[None]:
    """Convert the hub's errors into a `ConfigError`, which the user can fix, or a `DownloadError`."""
    from huggingface_hub import constants, errors

    at = f" at revision {revision}" if revision else ""
    try:
        yield
    except errors.GatedRepoError as error:
        page = f"https://huggingface.co/datasets/{repository}"
        raise ConfigError(
            f"the hub's {repository} is gated: accept its terms at {page}, then set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(f"the hub's {repository} has no revision {revision}") from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(
            f"the hub has no data set {repository} that this user may read"
        ) from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        why = (
            "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the network cannot be reached"
        )
        raise DownloadError(f"{repository}{at} is not in the hub's cache and {why}") from error
    except errors.HFValidationError as error:
        raise ConfigError(f"{repository}: not the name of a data set on the hub") from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        kind = ConfigError if status in _FIXABLE else DownloadError
        raise kind(f"the hub answered HTTP {status} for {repository}{at}") from error
    except network_errors() as error:
        line = str(error).splitlines()[0] if str(error) else ""
        raise DownloadError(
            f"the hub cannot be reached for {repository}{at}: {type(error).__name__} {line}".rstrip()
        ) from error


def network_errors() -> tuple[type[Exception], ...]:
    """Return the errors of huggingface_hub's HTTP library; those of requests are OSErrors."""
    libraries = (sys.modules.get(name) for name in ("httpx", "httpx2"))
    return (OSError, *(library.HTTPError for library in libraries if library is not None))
