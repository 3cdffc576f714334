"""The catalogue of data sets known by name, for `data list` and docs/data-sets.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.files import rendered
from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders import LOADERS, Loader
from coding_model_project.data.loaders.table import matching

COMMAND = "python -m coding_model_project data list --out docs/data-sets.md"
"""The command that regenerates the page."""

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
    return rendered(Path(__file__).with_suffix(".md.j2"), entries=catalogue(), command=COMMAND)
