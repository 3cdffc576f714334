"""A loader of a user's own file whose columns have other names, by `--map FIELD=COLUMN`.

`statement` and `tests` are required. By default, `id` is the row's number and `split` comes from the
file's name. Tests have our own form or a common one of public sets: {inputs, outputs, fn_name?}, a list
of {input, output}, a list of assertions, or test code as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders.base import (
    BAD_ROW,
    Place,
    Published,
    Row,
    SetAside,
    Trail,
    Unusable,
    renamed,
)
from coding_model_project.data.loaders.cases import (
    call_cases,
    columns,
    from_json,
    pairs,
    stdin_tests,
)
from coding_model_project.data.loaders.files import read_rows
from coding_model_project.data.loaders.table import UNKNOWN_SPLIT
from coding_model_project.data.problem_rows import FIELDS, JUDGED_BY, missing_field, problem_of
from coding_model_project.data.problem_values import Malformed
from coding_model_project.data.problems import from_file
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Asserts, GradedBy, Problem, Test

NEEDED = ("statement", "tests")
_GRADERS = {
    JUDGED_BY[grader]: grader
    for grader in (GradedBy.math, GradedBy.instructions, GradedBy.prediction, GradedBy.harness)
}
"""Fields that replace tests, each with its grader."""


def parse_map(given: Sequence[str] | None) -> dict[str, str]:
    """Parse the values of `--map FIELD=COLUMN`.

    Raises:
        ConfigError: a value has another form, or a field occurs twice.
    """
    found: dict[str, str] = {}
    for word in given or ():
        name, equals, column = word.partition("=")
        if not equals or not name or not column:
            raise ConfigError(
                f"--map={word}: expected FIELD=COLUMN, such as --map statement=question"
            )
        if name in found:
            raise ConfigError(f"--map={word}: the field {name} is mapped twice")
        found[name] = column
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedLoader:
    """See `base.Loader`. Unusable rows are set aside with the reason."""

    name: str

    @property
    def published(self) -> Published:
        return Published(name=self.name, licence="yours", fields=NEEDED, parts=())

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `base.Loader.items`."""
        unknown = [name for name in place.columns if name not in FIELDS]
        if unknown:
            known = ", ".join(FIELDS)
            raise ConfigError(f"--map {unknown[0]}=…: no such field; a problem has {known}")
        assert place.path is not None
        path = on_disk(place.path)
        trail.origins.append(str(place.path))
        split = place.split or _split_of(path)
        for number, (where, found) in enumerate(read_rows(path), 1):
            if isinstance(found, SetAside):
                yield found
                continue
            row = renamed(where, found, place.columns)
            grader = _grader(row, place.columns)
            missing = [n for n in NEEDED if n not in row and (n != "tests" or grader is None)]
            if missing:
                needs = f"a problem needs {' and '.join(NEEDED)}"
                raise DataError(f"{where}: {missing_field(missing[0], row, needs)}")
            try:
                problem = from_file(self._problem(row, number, split, grader), path)
            except (Unusable, Malformed) as reason:
                yield SetAside(where=where, reason=str(reason))
            except BAD_ROW as error:
                reason = f"field 'tests' has an unknown form ({type(error).__name__})"
                yield SetAside(where=where, reason=reason)
            else:
                if place.split in (None, problem.split, split_word(problem.split)):
                    yield problem

    def _problem(self, row: Row, number: int, split: str, grader: str | None) -> Problem:
        """Convert a row into a problem, without columns that share their name with other graders'."""
        kept = [n for n in FIELDS if n not in _GRADERS or _GRADERS[n] == grader]
        fields = {name: row[name] for name in kept if row.get(name) is not None}
        key = str(fields.get("id", number))
        fields["id"] = key if "/" in key else f"{self.name}/{key}"
        fields.setdefault("split", split)
        for name in ("gold", "bad"):
            if isinstance(fields.get(name), str):
                fields[name] = [fields[name]]
        if grader is not None:
            return problem_of({**fields, "grader": grader})
        tests = fields.pop("tests", None)
        if _is_ours(tests):
            return problem_of({**fields, "tests": tests})
        made = _tests(tests, fields.get("entry_point"))
        if not made:
            raise Unusable("no hidden tests")
        return replace(problem_of({**fields, "tests": []}), tests=made)


def _grader(row: Row, columns: Mapping[str, str]) -> str | None:
    """Return the grader that the row names, or that a mapped column implies; None for tests."""
    implied = (grader for field, grader in _GRADERS.items() if field in columns)
    return row.get("grader") or next(implied, None)


def _is_ours(tests: Any) -> bool:
    return isinstance(tests, list) and any(
        isinstance(test, Mapping) and {"stdin", "call", "asserts"} & test.keys() for test in tests
    )


def _tests(kept: Any, entry_point: str | None) -> tuple[Test, ...]:
    """Convert tests from the forms of public data sets; text is JSON, or else test code."""
    if isinstance(kept, str):
        if not kept.strip():
            raise Unusable("no hidden tests")
        if kept.lstrip()[0] not in "[{":
            return (Test(input=Asserts(source=kept, entry_point=entry_point)),)
        kept = from_json(kept, "tests")
    if isinstance(kept, Mapping):
        return columns(kept) if "inputs" in kept else stdin_tests(pairs(kept))
    if not isinstance(kept, list) or not kept:
        raise Unusable("no hidden tests")
    if all(isinstance(one, str) for one in kept):
        return tuple(Test(input=Asserts(source=one, entry_point=entry_point)) for one in kept)
    if all(isinstance(one, Mapping) and one.get("fn_name") for one in kept):
        return call_cases(kept)
    if all(isinstance(one, Mapping) and {"input", "output"} <= one.keys() for one in kept):
        return stdin_tests(pairs(kept))
    if _is_ours(kept):
        return problem_of({"id": "", "split": "", "statement": "", "tests": kept}).tests
    raise Unusable(
        "field 'tests' has an unknown form: expected our own, {inputs, outputs, fn_name}, a list of "
        "{input, output}, a list of assertions, or test code as text"
    )


def _split_of(path: Path) -> str:
    name = path.name.lower()
    words = (word for word in ("train", "valid", "test", "dev") if word in name)
    return split_word(next(words, UNKNOWN_SPLIT))
