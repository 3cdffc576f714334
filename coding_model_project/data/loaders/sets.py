"""The loaders of the public data sets in the table `sets.yaml`.

Keys of a set in the table, beside those of `Published` and `Form`:

    role        its permitted use (`data.governance.Role`); of a set that trains, the split "train" does
    splits      the published number of rows of each split; null if unknown
    parts       in its place, the keys of each `Part`
    words       the publisher's names of splits that have other names here
    files       names of its files, with {split}, {config} and {repository}
    needed      the required columns; by default those of the statement and the tests
    columns     the column of each field of a problem, as in `Form`
    optional    columns that only `prepare` reads
    prepare     "module.function" of this package that changes each row, for what no column says
    source      the first part of its problems' ids; by default its name
    complete    "module.function" of this package that makes its problems from those of its rows
    generator   a function of another room that makes the problems, in place of files
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from pkgutil import resolve_name
from typing import Any, TypeVar

from coding_model_project.data.governance import roles, set_table
from coding_model_project.data.loaders.base import Loader, LoaderByName, Part, Published
from coding_model_project.data.loaders.rows import Form
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.types import Limits

_NEEDED = ("statement", "tests", "truth", "answer")
_Keys = dict[str, Any]
_Made = TypeVar("_Made")


def _set(name: str, keys: _Keys) -> Loader:
    """Return the loader of a set. Each step takes its keys, so that an unknown one is left and fails."""
    keys.pop("role", None)  # for `governance`
    columns = keys.pop("columns", {})
    required = keys.pop("needed", None) or [
        one for field in _NEEDED for one in columns.get(field, "").split("+") if "|" not in one
    ]
    alternatives = (one for column in columns.values() for one in re.split(r"[+|]", column))
    read = [one for one in alternatives if not one.startswith("_")]
    refused = keys.get("refuse", {})
    optional = dict.fromkeys((*_heads(read), *refused, *keys.pop("optional", ())))
    form = _made(
        Form,
        keys,
        name=keys.pop("source", name),
        columns=columns,
        id=keys.pop("id", "{id}" if "id" in columns else "{split}/{index}"),
        limits=Limits(**keys.pop("limits", {})),
        prepare=_function(keys.pop("prepare", None)),
    )
    parts = _parts(name, keys)
    published = _made(
        Published,
        keys,
        name=name,
        fields=tuple(_heads(required)),
        optional=tuple(optional),
        parts=parts,
    )
    if generator := keys.pop("generator", None):
        return LoaderByName(published=published, source=generator)
    return TableLoader(
        published=published,
        to_problem=form,
        complete=_function(keys.pop("complete", None)),
        **keys,
    )


def _made(kind: Callable[..., _Made], keys: _Keys, **more: Any) -> _Made:
    """Make a dataclass, whose other fields it takes from the keys."""
    names = [field.name for field in fields(kind) if field.name in keys]  # pyrefly: ignore[bad-argument-type]
    return kind(**{name: keys.pop(name) for name in names}, **more)


def _function(name: str | None) -> Any:
    return name and resolve_name(f"{__package__}.{name}")


def _parts(name: str, keys: _Keys) -> tuple[Part, ...]:
    splits, words = keys.pop("splits", {}), keys.pop("words", {})
    given = keys.pop("parts", None) or [{"split": one, "n_rows": n} for one, n in splits.items()]
    usual = ("{repository}/{folder}/{split}-*.parquet", f"{name}.jsonl")
    files = keys.pop("files", None) or usual
    shared = {
        "split": None,
        "config": keys.pop("config", None),
        "hub_file": keys.pop("hub_file", None),
    }
    found = []
    for part in ({**shared, **one} for one in given):
        split = part["split"]
        names = {
            **part,
            "split": words.get(split, split),
            "folder": part["config"] or "data",
            "repository": keys.get("hub", "").split("/")[-1],
        }
        hub_file = names["hub_file"] = part["hub_file"] and part["hub_file"].format(**names)
        paths = tuple(file.format(**names) for file in files)
        part |= {"hub_file": hub_file, "hub_split": words.get(split)}
        found.append(Part(files=paths, **part))
    return tuple(found)


def _heads(columns: Iterable[str]) -> Iterable[str]:
    """Return the top columns of nested ones."""
    return (head for head in (column.partition(".")[0] for column in columns) if head)


roles()  # a set without a role fails here
SETS: dict[str, Loader] = {name: _set(name, dict(keys)) for name, keys in set_table().items()}
"""The loader of each set by name."""
