"""Cached files that are made once for all processes: headers, a library, an archive."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from coding_model_project.contained import open_lock

_KEPT_S = 14 * 86400.0


def make_once(folder: Path, name: str, make: Callable[[Path], None]) -> None:
    """Make a file unless it exists, and remove folders of older tools unused for 14 days.

    Args:
        folder: a cache folder named after its purpose and a digest: `headers-0123`.
        name: the file's name; the file appears whole or not at all.
        make: writes the file to the path that it gets.

    Raises:
        OSError: the folder cannot be written; exceptions of `make` also propagate.
    """
    target = folder / name
    with contextlib.suppress(OSError):
        os.utime(folder)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = open_lock(folder / ".lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _remove_unused(folder)
            make(target)
    finally:
        os.close(lock)


def _remove_unused(folder: Path) -> None:
    for other in folder.parent.glob(f"{folder.name.partition('-')[0]}-*"):
        if time.time() - other.stat().st_mtime > _KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
