"""The catalogue of data sets known by name, for `data list` and docs/data-sets.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders import LOADERS, Loader
from coding_model_project.data.loaders.table import matching

COMMAND = "python -m coding_model_project data list --out docs/data-sets.md"
"""The command that regenerates the page."""

_PAGE = """\
# Data sets known by name

Every command that takes a data set (`NAME`, `NAME=PATH` or `--dataset NAME[=PATH]`) accepts these names,
each optionally followed by a split: `mbpp_train`, `codecontests_valid`. The loader searches for the
publisher's file names under `--data-dir` (`$CODING_DATA_DIR`, else `./data`), including a clone of the
set's repository there, and then on the hub. `python -m coding_model_project data list` prints this table
with the files found on this machine; `--json` prints it for programs.

Only splits with the use "train" can get into a training file
([data governance](../experiment_design/data_governance.md)). `data dedup` removes training problems that
repeat an evaluation problem. The licence is the publisher's: read the set's card before you use it.

| name | permitted use: splits | tests | licence | hub | file names |
|---|---|---|---|---|---|
{rows}

`hardtests` needs two repositories: the tests that the table names, and `sigcp/hardtests_problems`, with
the statements.

To read a file whose columns have other names, use `--map FIELD=COLUMN` ([your own problems](my-data.md)).
Rows made for verl load under any name: `NAME=PATH`. From KodCode's pytest modules, the loader converts
plain test functions. It sets aside rows that need more of pytest, other libraries or files, and counts
them by reason.

This page is generated: `{command}`.
"""

ROLE_WORDS = {Role.train: "train", Role.validation: "validation", Role.test: "test only"}

GENERATED = "generated here"
BY_PATH = "by --path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A data set known by name."""

    name: str
    splits: Mapping[str, Role]
    """The permitted use of each of its splits."""
    tests: str
    licence: str
    hub: str | None
    files: tuple[str, ...]
    """Names of its publisher's files, searched for under the data folder."""
    found: tuple[str, ...] | None
    """The files found; None for sets without files to search for."""

    @property
    def status(self) -> str:
        """A word or two on whether its files were found."""
        if self.found is None:
            return GENERATED if self.licence != "yours" else BY_PATH
        return f"found ({len(self.found)})" if self.found else "not found"

    @property
    def uses(self) -> str:
        """Splits by permitted use, such as "train: train; test only: test"."""
        if self.status == BY_PATH:
            return "as its rows say"
        by_role: dict[Role, list[str]] = {}
        for split, allowed in self.splits.items():
            by_role.setdefault(allowed, []).append(split)
        return "; ".join(
            f"{ROLE_WORDS[one]}: {', '.join(splits)}" for one, splits in by_role.items()
        )


def catalogue(data_dir: Path | None = None) -> tuple[Entry, ...]:
    """Return every data set known by name.

    Args:
        data_dir: the folder to search for their files; None skips the search.
    """
    return tuple(_entry(name, loader, data_dir) for name, loader in LOADERS.items())


def _entry(name: str, loader: Loader, data_dir: Path | None) -> Entry:
    published = loader.published
    parts = published.parts
    files = tuple(dict.fromkeys(file for part in parts for file in part.files))
    found: list[str] | None = None
    if files:
        existing = [matching(data_dir, part, published) if data_dir else [] for part in parts]
        whole = all(existing) or not published.whole
        found = [str(path) for paths in existing for path in paths] if whole else []
    return Entry(
        name=name,
        splits={split: role(published.name, split) for split in published.splits},
        tests=published.tests,
        licence=published.licence,
        hub=published.hub,
        files=files,
        found=None if found is None else tuple(dict.fromkeys(found)),
    )


def render() -> str:
    """Return docs/data-sets.md as Markdown."""
    rows = [
        f"| `{one.name}` | {one.uses} | {one.tests} | {one.licence} | {_code(one.hub)} | "
        f"{', '.join(map(_code, one.files)) or one.status} |"
        for one in catalogue()
    ]
    return _PAGE.format(command=COMMAND, rows="\n".join(rows))


def _code(word: str | None) -> str:
    return f"`{word}`" if word else ""
