"""Caches on disk, shared by all workers: compilers' products, and files that are made once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from coding_model_project.contained import is_ours, open_lock

_MAX_BYTES = 512 << 20
_KEPT_S = 14 * 86400.0
_DIGEST = hashlib.sha256().digest_size


class Binaries:
    """A cache of files by key that evicts the least recently used.

    Each file is written under another name and then renamed, and begins with a digest of its content, so
    a reader gets all of it or nothing. On a full or read-only disk it stores nothing, but does not fail.
    """

    def __init__(self, folder: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes

    def get(self, key: str) -> bytes | None:
        """Return the content of a key, if it is still there and undamaged."""
        path = self._folder / key
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, content = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store content, and evict the least recently used files beyond the bound."""
        partial = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as file:
                partial = Path(file.name)
                file.write(hashlib.sha256(content).digest() + content)
            partial.replace(self._folder / key)
        except OSError:
            if partial is not None:
                partial.unlink(missing_ok=True)
            return
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another worker evicted it
                info = path.stat()
                found.append((info.st_mtime, info.st_size, path))
        size = sum(size for _, size, _ in found)
        for _, length, path in sorted(found):
            if size <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            size -= length


def cache_folder() -> Path:
    """Return a cache folder that only this user can write: its files are executed, even if confined.

    It is a temporary one if the home is not writable or belongs to another user.
    """
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = root / "coding_model_project"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if is_ours(folder.resolve()) and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        pass
    return Path(_of_this_process().name)


@lru_cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="coding-cache-")


def make_once(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    """Make a file unless it exists, and remove folders of older tools unused for 14 days.

    Args:
        folder: a cache folder named after its purpose and a digest: `headers-0123`.
        name: the file's name; the file appears whole or not at all.
        make: writes the file to the path that it gets, beside the final one.

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
            partial = target.with_name(f".{target.name}")
            make(partial)
            partial.replace(target)
    finally:
        os.close(lock)


def _remove_unused(folder: Path) -> None:
    for other in folder.parent.glob(f"{folder.name.partition('-')[0]}-*"):
        if time.time() - other.stat().st_mtime > _KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
