"""Files without a publisher: our own schema, columns given by `--map`, and forms that are unmistakable.

The last are rows made for verl, SkyRL, NeMo Gym, TRL, slime, verifiers, rLLM and open-instruct. The
refusal of any other file shows its columns and a command with a guess.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from coding_model_project.data.loaders.base import (
    BAD_ROW,
    IGNORED,
    SPLITS,
    Part,
    Place,
    Published,
    Row,
    SetAside,
    Trail,
    Unusable,
)
from coding_model_project.data.loaders.cases import Hints, tests_of
from coding_model_project.data.loaders.files import read_rows
from coding_model_project.data.loaders.rows import EXTRA, OTHER_KINDS, SLOW, Form, started
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.data.loaders.values import (
    answer_of,
    decoded_of,
    has_column,
    looks_like_code,
    programs_of,
    prompt_of,
    value_at,
)
from coding_model_project.data.problem_rows import COLUMN_NAMES, FIELDS
from coding_model_project.data.problems import from_file, problem_from_json
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import GradedBy, Problem

_ONLY_MAPPED = {
    *OTHER_KINDS, "answer", "messages", "grader", "prelude", "publisher", "ability", "source", "truth",
}  # fmt: skip
_IMPLICIT = tuple(one for one in (*FIELDS, *EXTRA) if one not in _ONLY_MAPPED)
"""Fields whose columns count without `--map`, if they have the field's own name."""

_TRUTH = ("ground_truth", "solution", "label", "answer", "expected_answer")
_ANSWERS = ("answer", "final_answer", *_TRUTH, "target", "gt")

_OTHERS = ("entry_point", "starter", "public", "time_limit", "memory_limit")
"""Further fields of rows to suggest."""

_NESTED = yaml.load((Path(__file__).parent / "forms.yaml").read_bytes(), Loader=yaml.CSafeLoader)
"""Unmistakable forms with columns that hold objects, in the table `forms.yaml`."""
VERL: Mapping[str, str] = _NESTED[0]["columns"]
"""The columns of rows made for verl."""


def is_own(path: Path, row: Row) -> bool:
    """Return whether a file whose first row this is has our own schema."""
    named = {"id", "split", "statement"} <= row.keys() and {"tests", "grader"} & row.keys()
    return bool(named) and path.name.endswith((".jsonl", ".jsonl.gz"))


def own_problems(name: str, place: Place, trail: Trail) -> Iterator[Problem]:
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


def mapped_loader(
    name: str, columns: Mapping[str, str], splits: Sequence[str] = SPLITS
) -> TableLoader:
    """Return the loader of a file whose columns a user named.

    Args:
        splits: the splits of the set of this name; if it has only one, the file is of that split.

    Raises:
        ConfigError: no problem has such a field.
    """
    if unknown := [field for field in columns if field not in (*FIELDS, *EXTRA)]:
        known = ", ".join((*FIELDS, *EXTRA))
        raise ConfigError(f"--map {unknown[0]}=…: no such field; a problem has {known}")
    whole = {**{field: field for field in _IMPLICIT}, **columns}
    kept = {field: column for field, column in whole.items() if column != IGNORED}
    form = Form(
        name=name,
        columns=kept,
        id="{id}",
        own_ids=True,
        given=frozenset(columns),
    )
    return _loader(form, (), splits)


def lacks_a_field(row: Row, columns: Mapping[str, str]) -> bool:
    """Return whether a row has no column for a problem's statement, or none for its tests or answer."""
    given = {field: column for field, column in columns.items() if column != IGNORED}
    if not all(has_column(row, column) for column in given.values()):
        return False  # the loader names the missing column
    named = set(given)
    found = named | {field for field in _IMPLICIT if field in row and field not in columns}
    return "statement" not in found or not found & {"truth", *(kind.field for kind in GradedBy)}


def form_of(row: Row) -> Mapping[str, str] | None:
    """Return the columns of the fields in a row of an unmistakable form; None for any other row."""
    for form in _NESTED:
        if all(name in row for name in form["needed"]):
            return form["columns"]
    prompts = [
        name for name in ("prompt", "messages") if isinstance(decoded_of(row.get(name)), list)
    ]
    truths = [name for name in _TRUTH if name in row]
    if len(prompts) == 1 and len(truths) == 1:
        return {"statement": prompts[0], "truth": truths[0], "ability": "dataset|data_source"}
    questions = [name for name in ("question", "problem") if isinstance(row.get(name), str)]
    tests = [name for name in ("tests", "ground_truth") if name in row]
    if len(questions) == 1 and len(tests) == 1:
        columns = {"statement": questions[0], "truth": tests[0], "ability": "ability|data_source"}
        columns |= {"gold": "solutions", "starter": "starter_code"}
        return columns if tests != ["tests"] else {**columns, "tests": "tests", "truth": IGNORED}
    return None


def form_loader(name: str, columns: Mapping[str, str]) -> TableLoader:
    """Return the loader of a file in a form that `form_of` recognised."""
    kept = {field: column for field, column in columns.items() if column != IGNORED}
    fields = [kept[field] for field in ("statement", "truth", "tests", "answer") if field in kept]
    needed = tuple("|".join(one.partition(".")[0] for one in field.split("|")) for field in fields)
    return _loader(Form(name=name, columns=kept, limits=SLOW), needed)


def _loader(form: Form, needed: tuple[str, ...], splits: Sequence[str] = SPLITS) -> TableLoader:
    heads = (part for one in form.columns.values() for part in one.replace("+", "|").split("|"))
    optional = tuple(dict.fromkeys(word for one in heads for word in (one, one.partition(".")[0])))
    return TableLoader(
        published=Published(
            name=form.name,
            licence="yours",
            fields=needed,
            optional=(*optional, "images", "image"),
            parts=tuple(Part(split=split, files=()) for split in splits),
            tests="any form",
        ),
        to_problem=form,
    )


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


def refusal(name: str, path: Path | str, row: Row) -> str:
    """Return the message for a file of an unknown form: its columns, a guess and a command for it."""
    found = ", ".join(map(str, row)) or "none"
    guess = guessed(row)
    has_tests = bool({"tests", "answer"} & guess.keys())
    filled = {"statement": "COLUMN", **({} if has_tests else {"tests": "COLUMN"}), **guess}
    words = [f"--map {shlex.quote(f'{field}={column}')}" for field, column in filled.items()]
    if not has_tests or "statement" not in guess:
        missing = "a known form of tests or answer" if "statement" in guess else "a statement"
        return (
            f"the row has columns {found}; none of them holds {missing}; map the right ones: "
            f"{' '.join(words)} (in Python: columns=)"
        )
    place = shlex.quote(f"{name}={path}")
    return (
        f"the row has columns {found}; map them, perhaps so: python -m coding_model_project data "
        f"preflight {place} {' '.join(words)}"
    )


def guessed(row: Row) -> dict[str, str]:
    """Return the columns that appear to hold a problem's fields."""
    found: dict[str, str] = {}
    for name in _like(row, COLUMN_NAMES["statement"]):
        if _fits(lambda value, of=name: prompt_of(value, of), row[name]):
            found["statement"] = name
            break
    rest = [name for name in row if name != found.get("statement")]
    others = {field: name for field in _OTHERS for name in _like(row, COLUMN_NAMES[field])[:1]}
    gold = next((one for one in _like(row, COLUMN_NAMES["gold"]) if one in rest and row[one]), None)
    hints = Hints(
        function=_text(row, others.get("entry_point"))
        or started(_text(row, others.get("starter"))),
        programs=programs_of(row[gold]) if gold else (),
    )
    named = [name for name in _like(row, COLUMN_NAMES["tests"]) if name in rest]
    whole = ["."] if _has_cases(row, found.get("statement")) else []
    shown = others.get("public")
    dotted = sorted(_dotted(row, rest), key=lambda name: name == shown)
    for name in dict.fromkeys((*named, *whole, *dotted)):
        value = value_at(row, name)
        if name != gold and _fits(lambda one: tests_of(one, hints), value):
            if (format_ := _like(row, COLUMN_NAMES["rest_of_statement"])) and "statement" in found:
                found["statement"] = "+".join((found["statement"], *format_))
            own = {of: one for of, one in others.items() if of != one and one != name and row[one]}
            own |= {"gold": gold} if hints.programs and gold else {}
            return {**found, "tests": name} | own
    for name in _ANSWERS:
        if name in rest and _fits(lambda one, of=name: answer_of(one, of), row[name]):
            return {**found, "answer": name}
    return found


def _like(row: Row, names: Sequence[str]) -> list[str]:
    """Return the row's columns of these names, in the names' order, also written as `testCases`."""
    plain = {str(one).lower().replace("_", ""): one for one in row}
    return [plain[name.replace("_", "")] for name in names if name.replace("_", "") in plain]


def _text(row: Row, name: str | None) -> str | None:
    value = row[name] if name else None
    return value if isinstance(value, str) and value.strip() else None


def _has_cases(row: Row, statement: str | None) -> bool:
    """Return whether inputs and outputs have columns of their own, beside the statement's."""
    names = {"inputs", "outputs"}, {"expected_output"}, {"input", "output"}
    fits = any(some <= row.keys() - {statement} for some in names)
    return fits and not (isinstance(row.get("output"), str) and looks_like_code(row["output"]))


def _dotted(row: Row, names: Sequence[str]) -> list[str]:
    """Return the columns that hold objects or lists, and those within objects."""
    found = []
    for name in names:
        try:
            value = decoded_of(row[name])
        except Unusable:
            continue
        if isinstance(value, Mapping):
            found += [name, *(f"{name}.{inner}" for inner in value)]
        elif isinstance(value, list):
            found.append(name)
    return found


def _fits(read: Any, value: Any) -> bool:
    try:
        read(value)
    except (Unusable, *BAD_ROW):
        return False
    return value is not None
