"""The loader of files in our own schema (`data.problems`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders.base import Place, Published, SetAside, Trail
from coding_model_project.data.loaders.files import first_row, read_rows
from coding_model_project.data.problems import from_file, problem_from_json
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Problem

OWN_FIELDS = ("id", "split", "statement", "tests")


def is_own(path: Path) -> bool:
    """Return whether a file's first usable row is in our own schema."""
    if path.is_dir() or not path.name.endswith((".jsonl", ".jsonl.gz")):
        return False
    fields = set(first_row(path) or ())
    return {"id", "split", "statement"} <= fields and bool({"tests", "grader"} & fields)


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
            problem = from_file(problem_from_json(row, where), path)
            if place.split in (None, problem.split, split_word(problem.split)):
                yield problem
