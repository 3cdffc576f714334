"""The loader of files in our own schema (`data.problems`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.loaders.base import Place, Published, Row, SetAside, Trail
from coding_model_project.data.loaders.files import read_rows
from coding_model_project.data.problems import from_file, problem_from_json
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Problem

OWN_FIELDS = ("id", "split", "statement", "tests")


def is_own(path: Path, row: Row) -> bool:
    """Return whether a file whose first row this is has our own schema."""
    named = {"id", "split", "statement"} <= row.keys() and {"tests", "grader"} & row.keys()
    return bool(named) and path.name.endswith((".jsonl", ".jsonl.gz"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoader:
    """See `base.Loader`. A malformed row is an error and not set aside, since the user can correct it."""

    name: str

    @property
    def published(self) -> Published:
        return Published(name=self.name, licence="yours", fields=OWN_FIELDS, parts=())

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `base.Loader.items`."""
        if place.path is None:
            raise ConfigError(f"{self.name}: no file of problems: pass {self.name}=PATH")
        path = on_disk(place.path)
        trail.origins.append(str(place.path))
        for where, row in read_rows(path):
            if isinstance(row, SetAside):
                raise DataError(f"{where}: {row.reason}")
            yield from_file(problem_from_json(row, where), path)
