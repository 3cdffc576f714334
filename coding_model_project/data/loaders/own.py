"""Files in our own schema (`data.problems`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coding_model_project.data.loaders.base import Place, Row, SetAside, Trail
from coding_model_project.data.loaders.files import read_rows
from coding_model_project.data.problems import from_file, problem_from_json
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Problem


def is_own(path: Path, row: Row) -> bool:
    """Return whether a file whose first row this is has our own schema."""
    named = {"id", "split", "statement"} <= row.keys() and {"tests", "grader"} & row.keys()
    return bool(named) and path.name.endswith((".jsonl", ".jsonl.gz"))


def problems(name: str, place: Place, trail: Trail) -> Iterator[Problem]:
    """Yield the problems of a file; see `base.LoaderByName`.

    A malformed row is an error and not set aside, since the user can correct it.
    """
    if place.path is None:
        raise ConfigError(f"{name}: no file of problems: pass {name}=PATH")
    path = on_disk(place.path)
    trail.origins.append(str(place.path))
    for where, row in read_rows(path):
        if isinstance(row, SetAside):
            raise DataError(f"{where}: {row.reason}")
        yield from_file(problem_from_json(row, where), path)
