"""Loading of data sets by name from local files or the hub: `load("mbpp_train")`.

A name is one of `LOADERS`, optionally followed by a split ("codecontests_valid"). The set is searched for
at `path`, then under the data folder by its publisher's file names, then on the hub. Any other name with
a path is a file in our own schema, a folder of Harbor tasks, or a function "package.module:function".

From a row to a problem, for every set and for `--map`:

    rows      a form: the columns of a problem's fields; its prompt, then its tests or its answer, then
              what no test can judge: checkers, interaction, images, any order or letter case
    cases     tests, answers and instructions in any form; `modules` has test code
    values    the values of columns: prompts, answers, programs, limits

    sets      loaders of the public sets in `sets.yaml`; `quirks`, `evalplus` and `humaneval_x` prepare
              rows that no column describes
    forms     files without a name: the unmistakable forms, `--map`, and the refusal of all others
    table     finds a set's files here or on the hub, reads and counts them; `files` reads one
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders import forms
from coding_model_project.data.loaders.base import (
    SPLITS,
    Loaded,
    Loader,
    LoaderByName,
    Place,
    Published,
    SetAside,
    Trail,
)
from coding_model_project.data.loaders.files import SUFFIXES, first_row
from coding_model_project.data.loaders.sets import SETS
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.redaction import redacted
from coding_model_project.storage.fetching import on_disk
from coding_model_project.storage.object_store import is_url
from coding_model_project.types import Problem, Test

__all__ = [
    "LOADERS",
    "Loaded",
    "Loader",
    "Place",
    "SetAside",
    "Trail",
    "data_dir",
    "find",
    "given_set",
    "load",
    "stream",
]


_OWN = "coding_model_project.data.loaders.forms:own_problems"
_HARBOR = "coding_model_project.harbor.loader:problems"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""A path that is a function of the user's instead, "package.module:function"."""
_PACKED_TASKS = {"path", "task_binary"}
"""Columns of a file of Harbor tasks (`harbor.format.tasks`)."""


def _yours(name: str, source: str) -> Loader:
    """Return the loader of a user's file or folder."""
    published = Published(name=name, licence="yours", fields=(), parts=())
    return LoaderByName(published=published, source=source)


def is_task_folder(path: Path) -> bool:
    """Return whether a path is a Harbor task or a folder of tasks, as deeply nested as Harbor's cache."""
    patterns = [f"{'*/' * depth}task.toml" for depth in range(5)]
    return path.is_dir() and any(next(path.glob(pattern), None) for pattern in patterns)


LOADERS: dict[str, Loader] = {
    **SETS,
    "verl": forms.form_loader("verl", forms.VERL),
}

_SPLITS_IN_NAMES = (*SPLITS, "valid", "prompt")
DATA_DIR_VARIABLE = "CODING_DATA_DIR"


def data_dir(given: Path | None = None) -> Path:
    """Return the folder of data sets: `given`, else $CODING_DATA_DIR, else ./data."""
    return given or Path(os.environ.get(DATA_DIR_VARIABLE) or "data")


def find(name: str) -> tuple[Loader, str | None] | None:
    """Return the loader of a name, and the split in the name if any; None for unknown names."""
    plain = name.lower().replace("-", "_")
    if plain in LOADERS:
        return LOADERS[plain], None
    base, _, split = plain.rpartition("_")
    if base in LOADERS and split in _SPLITS_IN_NAMES:
        return LOADERS[base], split
    return None


def given_set(word: str) -> tuple[str, str | None]:
    """Parse a data set from the command line: a name, NAME=PATH, or the path of a file.

    Returns:
        Its name, and its path if given.
    """
    name, equals, path = word.partition("=")
    if equals:
        return name, path
    if find(word) is None and (is_url(word) or Path(word).exists()):
        return Path(word).name.split(".")[0], word
    return word, None


def stream(
    name: str, place: Place, trail: Trail, *, max_tests: int | None = None
) -> Iterator[Problem]:
    """Yield a data set's problems one at a time, since whole sets may not fit in memory.

    Args:
        trail: where to record the origins, the notes and the unusable rows.
        max_tests: keep at most this many hidden tests of each problem, evenly spread.

    Raises:
        ConfigError: the set is unknown, or was not found; names the places searched.
        DataError: a file is damaged or is not this data set; names file and line.
    """
    loader, split = _loader(name, place)
    for problem in _of_split(loader, name, place, split, trail):
        yield problem if max_tests is None else _capped(problem, max_tests)


def load(
    name: str,
    *,
    path: str | Path | None = None,
    split: str | None = None,
    data_dir: Path | None = None,
    columns: Mapping[str, str] | None = None,
    max_tests: int | None = None,
) -> Loaded:
    """Load a whole data set into memory.

    Args:
        path: its file, folder or URL.
        split: the split to load; also the split of a file whose name and rows name none.
        data_dir: the folder to search by name.
        columns: the column in the file at `path` for each field that has another name there.
        max_tests: see `stream`.

    Raises:
        ConfigError, DataError: see `stream`.
    """
    trail = Trail()
    place = Place(
        path=path,
        data_dir=_data_dir(data_dir),
        split=split,
        columns=columns or {},
    )
    problems = tuple(stream(name, place, trail, max_tests=max_tests))
    return Loaded(
        name=name,
        problems=problems,
        set_aside=tuple(trail.set_aside),
        origin=redacted(", ".join(trail.origins)),
        notes=tuple(trail.notes),
    )


_data_dir = data_dir  # `load` has an argument of that name


def _of_split(
    loader: Loader, name: str, place: Place, named: str | None, trail: Trail
) -> Iterator[Problem]:
    """Yield a loader's problems of one split: the one in the name, the only one loaded, or the place's.

    Raises:
        ConfigError: there is no such split; names those that there are.
    """
    published = loader.published
    given = [split_word(one) for one in (place.split, named, published.split) if one]
    wanted = given[0] if given else None
    if len(set(given)) > 1:
        raise _no_split(name, given[0], given[1:])
    if wanted and place.path is None and wanted not in (published.splits or [wanted]):
        raise _no_split(name, wanted, published.splits)
    others: dict[str, None] = {}
    n_kept = 0
    for item in loader.items(replace(place, split=wanted), trail):
        if isinstance(item, SetAside):
            trail.set_aside.append(item)
        elif wanted not in (None, split_word(item.split)):
            others[item.split] = None
        else:
            n_kept += 1
            yield item
    if others and not n_kept:
        raise _no_split(name, str(wanted), others)


def _no_split(name: str, split: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"split={split} (--split): {name} has only {', '.join(known)}")


def _loader(name: str, place: Place) -> tuple[Loader, str | None]:
    """Return the loader of a name and place, and the split in the name if any."""
    known, split = find(name) or (None, None)
    if place.path is None:
        if place.columns:
            raise ConfigError(f"{name}: --map needs a file; pass {name}=PATH")
        return known or _unknown(name), split
    if _FUNCTION.fullmatch(str(place.path)) and not Path(place.path).exists():
        return _yours(name, str(place.path)), None
    path = on_disk(place.path)
    if is_task_folder(path):
        return _yours(name, _HARBOR), None
    row = first_row(path)
    if row is not None and row.keys() == _PACKED_TASKS:
        return _yours(name, _HARBOR), None
    if place.columns and not (known and known.published.has_columns(place.columns)):
        splits = known.published.splits if known else SPLITS
        loader = forms.mapped_loader(name, place.columns, splits)
        if row is not None and forms.lacks_a_field(row, place.columns):
            raise DataError(f"{place.path}: {forms.refusal(name, place.path, row)}")
        return loader, split
    if row is not None and not place.columns and forms.is_own(path, row):
        return _yours(name, _OWN), split
    if known and (row is None or place.columns or known.published.fields_are_in(row)):
        return known, split
    if row is None:
        return _yours(name, _OWN), split
    if columns := forms.form_of(row):
        return forms.form_loader(name, columns), split
    if known:
        return known, split
    if {"id", "split", "statement"} <= row.keys():
        return _yours(name, _OWN), split
    if not forms.lacks_a_field(row, {}):  # its columns have our names, without an id and a split
        return forms.mapped_loader(name, {}), split
    raise DataError(f"{place.path}: {forms.refusal(name, place.path, row)}")


def _unknown(name: str) -> NoReturn:
    if name.endswith(SUFFIXES):
        raise ConfigError(f"{name}: no such file")
    near = get_close_matches(name.lower().replace("+", "_plus"), LOADERS, n=1)
    raise ConfigError(
        f"{name}: no such data set; {f'did you mean {near[0]}? ' if near else ''}`data list` shows "
        "the known ones, each also with _train, _valid or _test; any other "
        f"name needs a file of problems: {name}=PATH"
    )


def _capped(problem: Problem, max_tests: int) -> Problem:
    hidden = problem.hidden_tests
    if len(hidden) <= max_tests:
        return problem
    numbers = [i * len(hidden) // max_tests for i in range(max_tests)]
    kept: tuple[Test, ...] = tuple(hidden[number] for number in numbers)
    base = problem.base_tests and sum(number < problem.base_tests for number in numbers)
    return replace(problem, tests=(*problem.public_tests, *kept), base_tests=base or None)
