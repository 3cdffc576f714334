"""Files on their way into and out of an environment: a list of entries, and their contents joined.

Both ends use this, so it needs nothing but the standard library. No link is ever followed out of the
folder that is packed or unpacked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

Entry = tuple[str, str, int, int | str]
"""Path, kind ("d", "f" or "l"), permissions, and a file's size or a link's target."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Tree:
    """Folders, files and symbolic links, each folder before what is in it."""

    entries: tuple[Entry, ...] = ()
    body: bytes = b""

    def file(self, path: str) -> bytes | None:
        """A regular file's content; None if there is no such file."""
        at = 0
        for name, kind, _, size in self.entries:
            if kind != "f":
                continue
            assert isinstance(size, int)
            if name == path:
                return self.body[at : at + size]
            at += size
        return None

    def below(self, folder: str) -> Tree:
        """The same files, each path below a folder, which it has too."""
        if not folder:
            return self
        parts = folder.split("/")
        above = (("/".join(parts[: n + 1]), "d", 0o755, 0) for n in range(len(parts)))
        moved = ((f"{folder}/{name}", kind, mode, x) for name, kind, mode, x in self.entries)
        return Tree((*above, *moved), self.body)

    def at(self, path: str) -> Tree:
        """The tree that was packed from a path, by paths below the root."""
        if [entry[0] for entry in self.entries] == [""]:
            ((_, kind, mode, extra),) = self.entries
            return Tree(((path, kind, mode, extra),), self.body)
        return self.below(path)

    def safe(self) -> Tree:
        """Without links that lead out of the tree."""
        return self._kept(lambda entry: entry[1] != "l" or not _leads_out(entry[0], str(entry[3])))

    def without(self, patterns: Sequence[str]) -> Tree:
        """Without what matches one of the patterns, by its path or the name of a part of it."""

        def left(entry: Entry) -> bool:
            parts = [entry[0], *entry[0].split("/")]
            return not any(fnmatch(part, one) for one in patterns for part in parts)

        return self._kept(left) if patterns else self

    def only(self, names: Container[str]) -> Tree:
        """With these entries alone."""
        return self._kept(lambda entry: entry[0] in names)

    def executable(self, path: str) -> Tree:
        """With one file that may be executed by all."""
        return Tree(
            tuple((n, k, m | 0o111 if n == path else m, x) for n, k, m, x in self.entries),
            self.body,
        )

    def _kept(self, which: Callable[[Entry], bool]) -> Tree:
        entries: list[Entry] = []
        parts: list[bytes] = []
        at = 0
        for entry in self.entries:
            size = entry[3] if entry[1] == "f" else 0
            assert isinstance(size, int)
            if which(entry):
                entries.append(entry)
                parts.append(self.body[at : at + size])
            at += size
        return Tree(tuple(entries), b"".join(parts))

    def within(self, folder: str) -> Tree:
        """The files below a folder, by their paths from there."""
        start = f"{folder}/"
        inside = self._kept(lambda entry: entry[0].startswith(start))
        entries = ((name[len(start) :], kind, mode, x) for name, kind, mode, x in inside.entries)
        return Tree(tuple(entries), inside.body)

    def __add__(self, other: Tree) -> Tree:
        return Tree(self.entries + other.entries, self.body + other.body)


class TooLarge(Exception):
    """More bytes or entries than were asked for."""


def _leads_out(path: str, target: str) -> bool:
    place = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return os.path.isabs(target) or place == ".." or place.startswith("../")


def of_bytes(path: str, content: bytes, mode: int = 0o644) -> Tree:
    """A tree of one file."""
    return Tree(((path, "f", mode, len(content)),), content)


def of_files(files: Iterable[tuple[str, Path]]) -> Tree:
    """A tree of chosen files and folders of the host: (path in the tree, path on the host).

    Links are kept as links.

    Raises:
        OSError: one cannot be read.
    """
    entries: list[Entry] = []
    parts: list[bytes] = []
    for name, path in files:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            entries.append((name, "l", 0o777, str(path.readlink())))
        elif stat.S_ISDIR(found.st_mode):
            entries.append((name, "d", stat.S_IMODE(found.st_mode), 0))
        elif stat.S_ISREG(found.st_mode):
            parts.append(path.read_bytes())
            entries.append((name, "f", stat.S_IMODE(found.st_mode), len(parts[-1])))
    return Tree(tuple(entries), b"".join(parts))


def pack(
    path: str,
    max_bytes: int,
    max_entries: int,
    *,
    devices: Container[int] | None = None,
    only: Container[str] | None = None,
) -> Tree:
    """What is at a path, which may be a file (then its one entry is called ""). Not what links lead to.

    Args:
        devices: file systems to stay on.
        only: names in the folder; the others are left.

    Raises:
        OSError: there is nothing, or it cannot be read.
        TooLarge: it is more than may be taken.
    """
    entries: list[Entry] = []
    body = bytearray()

    def take(at: str, name: str) -> None:
        found = os.lstat(at)
        if devices is not None and found.st_dev not in devices:
            return
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            entries.append((name, "l", mode, os.readlink(at)))
        elif stat.S_ISDIR(found.st_mode):
            if name:
                entries.append((name, "d", mode, 0))
            for child in sorted(os.listdir(at)):
                if not name and only is not None and child not in only:
                    continue
                take(f"{at.rstrip('/')}/{child}", f"{name}/{child}" if name else child)
        elif stat.S_ISREG(found.st_mode):
            content = read(at, max_bytes - len(body))
            body.extend(content)
            entries.append((name, "f", mode, len(content)))
        if len(entries) > max_entries:
            raise TooLarge(f"more than {max_entries} files")

    real = os.path.realpath(path)
    take(real, "")
    return Tree(tuple(entries), bytes(body))


def read(path: str, max_bytes: int) -> bytes:
    """A regular file.

    Raises:
        OSError: it cannot be read, or is none.
        TooLarge: it is longer than `max_bytes`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(f"{path} is a directory")
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        if found.st_size > max_bytes:
            raise TooLarge(f"{path} has {found.st_size} bytes, {max_bytes} may be taken")
        content = bytearray()
        while len(content) <= max_bytes and (chunk := os.read(fd, _CHUNK)):
            content += chunk
        if len(content) > max_bytes:
            raise TooLarge(f"{path} has more than {max_bytes} bytes")
        return bytes(content)
    finally:
        os.close(fd)


def unpack(target: str, entries: Sequence[Sequence[Any]], body: bytes) -> None:
    """Lay a tree over a folder, which is made if need be; what is in the way of a file is replaced.

    Raises:
        OSError: there is no room, or it may not be written.
    """
    at = 0
    view = memoryview(body)
    modes: list[tuple[str, int]] = []
    os.makedirs(target, exist_ok=True)
    for name, kind, mode, extra in entries:
        path = os.path.join(target, name) if name else target
        if kind == "d":
            os.makedirs(path, exist_ok=True)
            modes.append((path, mode))
            continue
        _make_way(path)
        if kind == "l":
            os.symlink(extra, path)
            continue
        _write(path, view[at : at + extra], mode)
        at += extra
    for path, mode in reversed(modes):
        os.chmod(path, mode)


def write(path: str, content: bytes, mode: int = 0o644) -> None:
    """A file of this content at a path.

    Raises:
        OSError: there is no room, or it may not be written.
    """
    _make_way(path)
    _write(path, memoryview(content), mode)


def _make_way(path: str) -> None:
    os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
    with suppress(FileNotFoundError):
        os.unlink(path)


def _write(path: str, content: memoryview, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        while content:
            content = content[os.write(fd, content) :]
        os.fchmod(fd, mode)
    finally:
        os.close(fd)
