"""What compilers made, by the content it was made from: on disk, shared by all workers, bounded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path

_MAX_BYTES = 512 << 20
_DIGEST = hashlib.sha256().digest_size


class Binaries:
    """Files by key. Each is written under another name and then renamed, and begins with a digest of
    its content, so that a reader gets all of it or nothing; the least recently used go first.

    A full or read-only disk makes it forget, not fail.
    """

    def __init__(self, folder: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes

    def get(self, key: str) -> bytes | None:
        """What was put in under this key, if it is still there and undamaged."""
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
        """Keep this, and drop what has not been used for longest beyond the bound."""
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
            with contextlib.suppress(OSError):  # another worker dropped it
                told = path.stat()
                found.append((told.st_mtime, told.st_size, path))
        size = sum(size for _, size, _ in found)
        for _, length, path in sorted(found):
            if size <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            size -= length


def cache_folder() -> Path:
    """This user's, and nobody else's: what lies there is executed, if only confined.

    A temporary one where the home is not writable or not ours.
    """
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = root / "coding_model_project"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        told = folder.stat()
        if told.st_uid == os.getuid() and not told.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        pass
    return Path(_of_this_process().name)


@lru_cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="coding-cache-")
