"""A run's folder from where its job wrote it: a path that this machine shares, or its mirror's URL."""

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
"""What file systems of fsspec call the time of the last change; `created` where there is no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a fetch did."""

    source: str
    copied: int
    kept: int
    """Files that were here already, of the same size and not older."""


def fetch(run_dir: str, mirror: str, out: Path, *, checkpoints: bool) -> Fetched:
    """Copy a run's folder; again, only what has changed since.

    Args:
        run_dir: taken if it is a folder of this machine.
        mirror: the URL that is read otherwise; empty if there is none.
        checkpoints: copy these, too.

    Raises:
        ConfigError: neither is there.
        JobError: the copy failed; what was copied is whole, and the next call goes on.
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
    """Return true if a copy has the size of its original and is not older."""
    if not target.is_file():
        return False
    changed = next((about[key] for key in _CHANGED if key in about), time.time())
    changed = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    here = target.stat()
    return here.st_size == about["size"] and here.st_mtime >= changed
