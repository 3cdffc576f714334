"""Local copies of many objects, of which later calls fetch only what has changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.contained import below
from coding_model_project.storage.object_store import Entry, ObjectStore

_UNFINISHED = ".partial"
_SAME_TIME_S = 0.01
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The result of a call."""

    copied: int
    kept: int
    """Number of files that were up to date."""


def copy_changed(
    store: ObjectStore,
    entries: Mapping[str, Entry],
    folder: Path,
    wanted: Callable[[str], bool],
) -> Copied:
    """Copy objects whose copies differ in size or time; each file appears whole.

    An object that has vanished is left for the next call.

    Args:
        entries: the objects, by their path below the store's URL and the folder.
    """
    n_copied = n_kept = 0
    for path, entry in entries.items():
        if not path or path.endswith(_UNFINISHED) or not wanted(path):
            continue
        target = below(folder, path)
        if _is_same(target, entry):
            n_kept += 1
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = below(folder, path + _UNFINISHED)
        try:
            store.get(path, partial)
        except FileNotFoundError:
            continue
        if not _extended(target, partial):
            partial.replace(target)
        # The source's own time, so that clocks need not agree, and a change during the copy is noticed.
        os.utime(target, (entry.modified, entry.modified))
        n_copied += 1
    return Copied(copied=n_copied, kept=n_kept)


def _is_same(target: Path, entry: Entry) -> bool:
    """Return whether a copy has the size and time of its original."""
    if not target.is_file() or not entry.modified:
        return False
    here = target.stat()
    return here.st_size == entry.bytes and abs(here.st_mtime - entry.modified) < _SAME_TIME_S


def _extended(target: Path, grown: Path) -> bool:
    """Append what a file has grown by, if it only grew: readers follow the end of the same file."""
    if not target.exists() or target.stat().st_size > grown.stat().st_size:
        return False
    with target.open("r+b") as file, grown.open("rb") as new:
        while before := file.read(_CHUNK_BYTES):
            if new.read(len(before)) != before:
                return False
        while more := new.read(_CHUNK_BYTES):
            file.write(more)
    grown.unlink()
    return True
