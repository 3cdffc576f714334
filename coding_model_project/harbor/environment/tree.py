"""Trees of files, also as tar files, and bounded output: all that enters or leaves an environment.

Both ends use this module. It never follows a link out of the folder that it packs.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

from coding_model_project.contained import Members, UnsafeNameError, in_root, leaves, link_leaves

Entry = tuple[str, str, int, bytes | str]
"""Path, kind ("d", "f" or "l"), permissions, and the file's content or the link's target; a folder has no
content."""

MAX_ENTRIES = 20_000
"""Most files, folders and links of a tree that comes out of an environment."""

_MAX_HOST_BYTES, _MAX_HOST_ENTRIES = 1 << 30, 1_000_000
"""Most bytes, which are held in memory, and entries of a tree of the host."""

_CHUNK = 1 << 20
_MOST_FOLDERS = 200
"""Folders within each other in a packed tree; each takes a call of a function."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Folders, files and symbolic links, each folder before its contents."""

    entries: tuple[Entry, ...] = ()

    @property
    def n_bytes(self) -> int:
        """The size of its files."""
        return sum(len(entry[3]) for entry in self.entries if entry[1] == "f")

    def file(self, path: str) -> bytes | None:
        """Return a regular file's content; None if there is no such file."""
        return next(
            (x for name, _, _, x in self.entries if name == path and type(x) is bytes), None
        )

    def below(self, folder: str) -> Tree:
        """Return the tree moved below a folder, with entries for that folder."""
        if not folder:
            return self
        parts = folder.split("/")
        above = (("/".join(parts[: n + 1]), "d", 0o755, "") for n in range(len(parts)))
        return Tree((*above, *self.moved(folder).entries))

    def moved(self, path: str) -> Tree:
        """Return the tree moved to a path, without entries for that path and the folders above."""
        moved = (
            (f"{path}/{name}".strip("/"), kind, mode, x) for name, kind, mode, x in self.entries
        )
        return Tree(tuple(moved))

    def at(self, path: str) -> Tree:
        """Return the tree packed from a path, with paths relative to the root."""
        is_file = [entry[0] for entry in self.entries] == [""]
        return self.moved(path) if is_file else self.below(path)

    def safe(self) -> Tree:
        """Return the tree without links that lead out of it."""
        return self.kept(lambda one: one[1] != "l" or not link_leaves(one[0], str(one[3])))

    def without(self, patterns: Sequence[str]) -> Tree:
        """Return the tree without entries whose path, or a part of it, matches one of the patterns."""

        def is_kept(entry: Entry) -> bool:
            parts = [entry[0], *entry[0].split("/")]
            return not any(fnmatch(part, one) for one in patterns for part in parts)

        return self.kept(is_kept) if patterns else self

    def executable(self, path: str) -> Tree:
        """Return the tree with one file executable for all users."""
        return Tree(tuple((n, k, m | 0o111 if n == path else m, x) for n, k, m, x in self.entries))

    def kept(self, which: Callable[[Entry], bool]) -> Tree:
        """Return the tree with the entries that `which` accepts."""
        return Tree(tuple(filter(which, self.entries)))

    def within(self, folder: str) -> Tree:
        """Return the files below a folder, with paths relative to it."""
        start = f"{folder}/"
        inside = (entry for entry in self.entries if entry[0].startswith(start))
        return Tree(tuple((name[len(start) :], kind, mode, x) for name, kind, mode, x in inside))

    def __add__(self, other: Tree) -> Tree:
        return Tree(self.entries + other.entries)

    def frame(self) -> tuple[list[Any], bytes]:
        """Return the entries as plain JSON, with sizes in place of contents, and the contents."""
        heads = [(n, k, m, len(x) if k == "f" else x) for n, k, m, x in self.entries]
        return heads, b"".join(x for *_, x in self.entries if type(x) is bytes)

    def digest(self) -> str:
        """Return a hash of all paths, permissions and contents."""
        heads, body = self.frame()
        return sha256(repr(heads).encode() + body).hexdigest()

    @classmethod
    def of_frame(cls, heads: Iterable[Sequence[Any]], body: bytes) -> Tree:
        """Return the tree of a frame."""
        rest = io.BytesIO(body)
        return cls(tuple((n, k, m, rest.read(x) if k == "f" else x) for n, k, m, x in heads))


class TooLarge(OSError):
    """A path with more bytes or entries than the limit."""


def of_bytes(path: str, content: bytes, mode: int = 0o644) -> Tree:
    """Return a tree of one file."""
    return Tree(((path, "f", mode, content),))


def of_folder(path: Path, keeps: Callable[[str], bool] | None = None) -> Tree:
    """Return the tree at a path of the host, as `pack`; an empty one if there is nothing."""
    if not path.exists():
        return Tree()
    return pack(str(path.absolute()), _MAX_HOST_BYTES, _MAX_HOST_ENTRIES, keeps=keeps)


def pack(
    path: str,
    max_bytes: int,
    max_entries: int,
    *,
    devices: Container[int] | None = None,
    keeps: Callable[[str], bool] | None = None,
) -> Tree:
    """Return the tree at a path, which may be a file (its only entry is then ""). Links stay links.

    Args:
        devices: file systems to stay on.
        keeps: returns whether to pack a path in the folder, with all below; by default all.

    Raises:
        OSError: the path does not exist, or cannot be read.
        TooLarge: its contents exceed a limit.
    """
    entries: list[Entry] = []
    left = max_bytes

    def take(at: str, name: str) -> None:
        nonlocal left
        found = os.lstat(at)
        if devices is not None and found.st_dev not in devices:
            return
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            entries.append((name, "l", mode, os.readlink(at)))
        elif stat.S_ISDIR(found.st_mode):
            if name:
                entries.append((name, "d", mode, ""))
            for child in sorted(os.listdir(at)):
                inner = f"{name}/{child}" if name else child
                if keeps is None or keeps(inner):
                    take(f"{at.rstrip('/')}/{child}", inner)
        elif stat.S_ISREG(found.st_mode):
            content = read(at, left)
            left -= len(content)
            entries.append((name, "f", mode, content))
        if name.count("/") > _MOST_FOLDERS:
            raise TooLarge(f"more than {_MOST_FOLDERS} folders within each other")
        if len(entries) > max_entries:
            raise TooLarge(f"more than {max_entries} files")

    take(str(in_root(Path("/"), path)), "")
    return Tree(tuple(entries))


def read(path: str, max_bytes: int) -> bytes:
    """Read a regular file.

    Raises:
        OSError: it cannot be read, or is not a regular file.
        TooLarge: it is longer than `max_bytes`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(f"{path} is a directory")
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        if found.st_size > max_bytes:
            raise TooLarge(f"{path} has {found.st_size} bytes, more than the limit of {max_bytes}")
        content = bytearray()
        while len(content) <= max_bytes and (chunk := os.read(fd, _CHUNK)):
            content += chunk
        if len(content) > max_bytes:
            raise TooLarge(f"{path} has more than {max_bytes} bytes")
        return bytes(content)
    finally:
        os.close(fd)


def keep(target: Path, tree: Tree) -> None:
    """Copy a tree, which may come from a hostile place, into a folder of the host.

    It leaves out what could lead out of the folder: names, links, and files below links.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    members = Members(len(tree.entries), tree.n_bytes)

    def is_inside(entry: Entry) -> bool:
        try:
            members.add(entry[0], link=entry[1] == "l")
        except UnsafeNameError:
            return False
        return not leaves(target, target / entry[0])

    safe = tree.safe().kept(is_inside)
    # Without set-user-ID bits: on the host, the file would be this user's.
    unpack(str(target), Tree(tuple((n, k, m & 0o777, x) for n, k, m, x in safe.entries)))


def unpack(target: str, tree: Tree) -> None:
    """Copy a tree over a room's folder; make the folder if needed, and replace existing files.

    It follows links in the folder. On the host use `keep`.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    modes: list[tuple[str, int]] = []
    os.makedirs(target, exist_ok=True)
    for name, kind, mode, content in tree.entries:
        path = os.path.join(target, name) if name else target
        if kind == "d":
            os.makedirs(path, exist_ok=True)
            modes.append((path, mode))
            continue
        os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(path)
        if isinstance(content, bytes):
            _write(path, memoryview(content), mode)
        else:
            os.symlink(content, path)
    for path, mode in reversed(modes):
        os.chmod(path, mode)


def _write(path: str, content: memoryview, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        while content:
            content = content[os.write(fd, content) :]
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


# ── tar files, which images can unpack and pack themselves ────────────────────────────────────────


_TAR_TYPES = {"d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE}


def to_tar(tree: Tree) -> bytes:
    """Return a tree as a tar file; root owns all files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, mode, content in tree.entries:
            about = tarfile.TarInfo(name)
            about.mode = mode
            if isinstance(content, bytes):
                about.size = len(content)
                archive.addfile(about, io.BytesIO(content))
                continue
            about.type, about.linkname = _TAR_TYPES[kind], content
            archive.addfile(about)
    return made.getvalue()


def from_tar(packed: bytes, max_bytes: int) -> Tree:
    """Return the tree in a tar file, whose writer may be hostile: an agent may replace a room's `tar`.

    Raises:
        OSError: the file is damaged or compressed, a name leads out of the tree, or there is too much.
    """
    entries: list[Entry] = []
    contents: dict[str, bytes] = {}
    members = Members(MAX_ENTRIES, max_bytes)
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            for about in archive:
                name = about.name.removeprefix("./")
                if name in ("", "."):
                    continue
                is_file, content = about.isreg() or about.islnk(), None
                if about.islnk():
                    content = contents[about.linkname.removeprefix("./")]
                size = about.size if content is None else len(content)
                members.add(name, size if is_file else 0, link=about.issym())
                if about.isdir():
                    entries.append((name, "d", about.mode & 0o7777, ""))
                elif about.issym():
                    entries.append((name, "l", 0o777, about.linkname))
                elif is_file:
                    opened = archive.extractfile(about) if content is None else io.BytesIO(content)
                    assert opened is not None
                    contents[name] = opened.read()
                    entries.append((name, "f", about.mode & 0o7777, contents[name]))
    except (tarfile.TarError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
        raise OSError(f"not a readable tar file: {error}") from error
    return Tree(tuple(entries))


# ── output of commands ────────────────────────────────────────────────────────────────────────────


class Kept:
    """A buffer that keeps the beginning and the end of a command's output, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max(1, max_bytes // 2)
        self._head, self._tail = bytearray(), bytearray()
        self._lost = 0

    def add(self, chunk: bytes) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._half:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._half
        if excess > 0:
            self._lost += excess
            del self._tail[:excess]

    def take(self) -> tuple[bytes, int]:
        """Return the kept bytes, and the number of dropped bytes between its halves."""
        self._trim()
        return bytes(self._head + self._tail), self._lost

    def forget(self) -> None:
        """Drop the kept bytes."""
        self._head, self._tail = bytearray(), bytearray()


def bounded(text: str | None, max_bytes: int) -> str:
    """Return a text's beginning and end, as `Kept` keeps them."""
    kept = Kept(max_bytes)
    kept.add((text or "").encode("utf-8", "surrogateescape"))
    return shown(*kept.take(), max_bytes)


def shown(kept: bytes, lost: int, max_bytes: int) -> str:
    """Return kept bytes as text, with a note in the middle on how much was dropped there."""
    if not lost:
        return kept.decode("utf-8", "replace")
    half = max(1, max_bytes // 2)
    head, tail = kept[:half], kept[half:]
    note = f"\n[… {lost} bytes left out …]\n"
    return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
