"""The loaders of the public data sets in the table `sets.yaml`.

Keys of a set in the table, beside those of `Published` and `Form`:

    splits      the published number of rows of each split; null if unknown
    parts       in its place, the keys of each `Part`
    words       the publisher's names of splits that have other names here
    files       names of its files, with {split}, {config} and {repository}
    needed      the required columns; by default those of the statement and the tests
    columns     the column of each field of a problem, as in `Form`
    optional    columns that only `prepare` reads
    prepare     a function of `quirks`, for what no column says
    converter   a function of `_CONVERTERS`, which converts its rows in place of `Form`
    source      the first part of its problems' ids; by default its name
    joined      another repository, whose rows complete those with the same value in the column `key`
    complete    a function of `_COMPLETED`, which makes its problems from those of its rows
    generator   a function of another room that makes the problems, in place of files
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from coding_model_project.data.loaders import (
    bigcodebench,
    cruxeval,
    evalplus,
    gsm8k_5shot,
    humaneval,
    humaneval_x,
    mbpp,
    quirks,
)
from coding_model_project.data.loaders.base import Loader, LoaderByName, Part, Published
from coding_model_project.data.loaders.rows import Form
from coding_model_project.data.loaders.table import CompletedLoader, Joined, TableLoader
from coding_model_project.types import Limits

_OF_FORM = ("id", "kind", "limits", "prepare", "tolerant", "comparison", "prelude", "publisher",
            "one_process")  # fmt: skip
_NEEDED = ("statement", "tests", "truth", "answer")


def _set(
    name: str,
    *,
    splits: Mapping[str, int | None] | None = None,
    parts: Sequence[Mapping[str, Any]] | None = None,
    words: Mapping[str, str] | None = None,
    files: Sequence[str] | None = None,
    hub_file: str | None = None,
    config: str | None = None,
    needed: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    optional: Sequence[str] = (),
    converter: str | None = None,
    source: str | None = None,
    joined: Mapping[str, Any] | None = None,
    complete: str | None = None,
    generator: str | None = None,
    once: bool = False,
    hub: str | None = None,
    **others: Any,
) -> Loader:
    """Return the loader of a set from its keys in the table."""
    columns = columns or {}
    form = {key: others.pop(key) for key in _OF_FORM if key in others}
    required = needed or [
        one for field in _NEEDED for one in columns.get(field, "").split("+") if "|" not in one
    ]
    alternatives = (one for column in columns.values() for one in re.split(r"[+|]", column))
    read = [one for one in alternatives if not one.startswith("_")]
    published = Published(
        name=name,
        hub=hub,
        fields=tuple(_heads(required)),
        optional=tuple(dict.fromkeys((*_heads(read), *optional))),
        parts=_parts(
            parts or [{"split": one, "n_rows": n_rows} for one, n_rows in (splits or {}).items()],
            files or ("{repository}/{folder}/{split}-*.parquet", f"{name}.jsonl"),
            words or {},
            {"config": config, "hub_file": hub_file},
            (hub or "").split("/")[-1],
        ),
        **others,
    )
    if generator:
        return LoaderByName(published=published, source=generator)
    table = TableLoader(
        published=published,
        to_problem=partial(_CONVERTERS[converter], name)
        if converter
        else _form(source or name, columns, **form),
        once=once,
        joined=_joined(name, **joined) if joined else None,
    )
    if complete:
        return CompletedLoader(table=table, complete=_COMPLETED[complete])
    return table


def _parts(
    parts: Iterable[Mapping[str, Any]],
    files: Iterable[str],
    words: Mapping[str, str],
    defaults: Mapping[str, str | None],
    repository: str,
) -> tuple[Part, ...]:
    found = []
    for given in parts:
        part = {"split": None, **defaults, **given}
        split, config = part["split"], part["config"]
        names = {
            **part,
            "split": words.get(split, split),
            "folder": config or "data",
            "repository": repository,
        }
        hub_file = part["hub_file"] and part["hub_file"].format(**names)
        names["hub_file"] = hub_file
        paths = tuple(file.format(**names) for file in files)
        part |= {"hub_file": hub_file, "hub_split": words.get(split)}
        found.append(Part(files=paths, **part))
    return tuple(found)


def _heads(columns: Iterable[str]) -> Iterable[str]:
    """Return the top columns of nested ones."""
    return (head for head in (column.partition(".")[0] for column in columns) if head)


def _form(
    source: str,
    columns: Mapping[str, str],
    *,
    id: str | None = None,
    limits: Mapping[str, Any] | None = None,
    prepare: str | None = None,
    **more: Any,
) -> Form:
    return Form(
        name=source,
        columns=columns,
        id=id or ("{id}" if "id" in columns else "{split}/{index}"),
        limits=Limits(**limits or {}),
        prepare=getattr(quirks, prepare) if prepare else None,
        **more,
    )


def _joined(
    name: str, *, hub: str, key: str, needed: Sequence[str], optional: Sequence[str], prepare: str
) -> Joined:
    repository = hub.split("/")[-1]
    files = (f"{repository}/data/train-*.parquet", f"{repository}.jsonl")
    published = Published(
        name=repository,
        licence="",
        fields=tuple(needed),
        optional=tuple(optional),
        parts=(Part(split="train", files=files),),
        hub=hub,
        completes=name,
    )
    return Joined(published=published, key=key, prepare=getattr(quirks, prepare))


_CONVERTERS = {
    "bigcodebench": bigcodebench.problem,
    "cruxeval": cruxeval.problem,
    "humaneval": humaneval.problem,
    "humaneval_plus": evalplus.humaneval,
    "humaneval_x": humaneval_x.problem,
    "mbpp": mbpp.full,
    "mbpp_plus": evalplus.mbpp,
    "mbpp_sanitized": mbpp.sanitized,
}
_COMPLETED = {"evalplus": evalplus.with_values, "gsm8k_5shot": gsm8k_5shot.with_examples}
_TABLE = yaml.load((Path(__file__).parent / "sets.yaml").read_bytes(), Loader=yaml.CSafeLoader)
SETS: dict[str, Loader] = {name: _set(name, **keys) for name, keys in _TABLE.items()}
"""The loader of each set by name."""
