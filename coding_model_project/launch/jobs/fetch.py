"""Copies of a job's run folder, from a path on a shared disk or from the mirror's URL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from coding_model_project.errors import ConfigError, JobError

CHECKPOINTS = "checkpoints"
_UNFINISHED = ".partial"
_CHANGED = ("mtime", "LastModified", "updated", "created")
"""fsspec's names for the time of the last change, by file system; `created` if there is no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a fetch."""

    source: str
    copied: int
    kept: int
    """Files that were up to date here: of the same size and not older."""


def fetch(run_dir: str, mirror: str, out: Path, *, checkpoints: bool) -> Fetched:
    """Copy a run's folder; a repeated call copies only changed files.

    Args:
        run_dir: the source if this machine has such a folder.
        mirror: the URL to read otherwise; empty if there is none.
        checkpoints: whether to copy checkpoints too.

    Raises:
        ConfigError: neither source exists.
        JobError: the copy failed; the copied files are complete, and the next call resumes.
    """
    source = run_dir if Path(run_dir).is_dir() else mirror
    if not source:
        raise ConfigError(
            f"coding.run_dir={run_dir}: not on this machine, and the job has no coding.mirror.url; "
            "run `jobs fetch` where the folder is, give its URL by --from, or submit with that key"
        )
    try:
        fs, root = fsspec.url_to_fs(source)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{source}: {error}") from error
    try:
        found = fs.find(root, detail=True)
        if not found:
            raise ConfigError(f"{source}: nothing there yet; the run has not begun to write")
        copied = kept = 0
        for path, about in sorted(found.items()):
            name = PurePosixPath(path).relative_to(PurePosixPath(root))
            if name.name.endswith(_UNFINISHED) or (
                name.parts[0] == CHECKPOINTS and not checkpoints
            ):
                continue
            target = out / name
            if _is_same(target, about):
                kept += 1
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(target.name + _UNFINISHED)
            fs.get_file(path, str(partial))
            partial.replace(target)
            copied += 1
    except FileNotFoundError as error:
        raise JobError(f"{source}: {error} vanished meanwhile; fetch again") from error
    except OSError as error:
        why = " ".join(str(error).split())
        raise JobError(f"{source}: cannot be copied to {out} ({why}); fetch again") from error
    return Fetched(source=source, copied=copied, kept=kept)


def _is_same(target: Path, about: Mapping[str, Any]) -> bool:
    """Return whether a copy has the size of its original and is not older."""
    if not target.is_file():
        return False
    changed = next((about[key] for key in _CHANGED if key in about), time.time())
    changed = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    here = target.stat()
    return here.st_size == about["size"] and here.st_mtime >= changed
