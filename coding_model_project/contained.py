"""Names from outside, which never become paths outside of their folder.

Archives, listings of stores, manifests, indices, requests, tasks and data sets name files, and whoever
wrote them may be hostile. So may other users of this machine, who can make a file of any known name in
/tmp first. All of this package resolves such names here; `tests/unit/test_contained_use.py` finds code
that does not.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from coding_model_project.errors import DataError, StorageError

_NAME_MAX = 255
"""Bytes of a file's name, see limits.h."""
_SHOWN_CHARS = 80
_LONGEST_MADE = 200
"""Characters of a name made by `file_name`, to which callers append a suffix."""
_UNFIT = re.compile(r"[/\x00-\x1f\x7f]")
_MOST_LINKS = 40
"""Links that the kernel follows on the way to one file, see path_resolution(7)."""

MAX_MEMBERS = 1_000_000
MAX_UNPACKED_BYTES = 64 << 30
"""Limits of an archive that is unpacked to disk, such as a root file system."""


class UnsafeNameError(DataError, ValueError):
    """A name from outside that names no file below its folder."""


def relative(name: str) -> str:
    """Return a name if it is a path of plain parts: not absolute, without empty ones, `.` or `..`.

    Raises:
        UnsafeNameError: it is not.
    """
    try:
        parts = os.fsencode(name).split(b"/")
    except UnicodeEncodeError:
        parts = []
    shown = repr(name[:_SHOWN_CHARS])
    if b".." in parts or name.startswith("/"):
        raise UnsafeNameError(f"the name {shown} is outside its folder")
    if not parts or any(part in (b"", b".") or b"\0" in part for part in parts):
        raise UnsafeNameError(f"{shown} does not name a file")
    if max(map(len, parts)) > _NAME_MAX:
        raise UnsafeNameError(f"the name {shown}… is too long: a part has over {_NAME_MAX} bytes")
    return name


def below(root: Path, name: str) -> Path:
    """Return the path of a name below a folder, if no link on the way leads out of the folder.

    Raises:
        UnsafeNameError: the name or a link leads out of it.
    """
    path = root / relative(name)
    if leaves(root, path):
        raise UnsafeNameError(f"{name[:_SHOWN_CHARS]!r} is a link out of {root}")
    return path


def single(name: str) -> str:
    """Return a name if it is the name of one file or folder.

    Raises:
        UnsafeNameError: it is not.
    """
    if "/" in relative(name):
        raise UnsafeNameError(f"{name[:_SHOWN_CHARS]!r} is a path, not a name")
    return name


def file_name(text: str) -> str:
    """Return text, such as a problem's id or a data set's name, as a file's name without suffix."""
    name = _UNFIT.sub("-", text.encode("utf-8", "replace").decode())[:_LONGEST_MADE]
    name = name.encode()[:_LONGEST_MADE].decode("utf-8", "ignore")
    return f"_{name}" if name.startswith(".") or not name else name


def leaves(root: Path, path: Path, *, in_hub: bool = False) -> bool:
    """Return whether a path below a folder leads out of it through links.

    Args:
        in_hub: True to let files of the hub's cache be links to the `blobs` beside its `snapshots`.
    """
    try:
        real, inside = path.resolve(), root.resolve()
    except (OSError, RuntimeError):  # too long, or a loop of links
        return True
    blobs = [above.parent / "blobs" for above in inside.parents if above.name == "snapshots"]
    return not any(real.is_relative_to(one) for one in (inside, *blobs[: int(in_hub)]))


def link_leaves(name: str, target: str) -> bool:
    """Return whether a link in a tree of files may lead out of it, by its text alone.

    `..` counts only at the target's start, where it refers to the link's own folders. After other parts,
    which may be links themselves, it may lead anywhere.
    """
    up, parts = 0, PurePosixPath(target).parts
    while parts[up : up + 1] == ("..",):
        up += 1
    return (
        target.startswith("/")
        or "\0" in target
        or ".." in parts[up:]
        or up > len(PurePosixPath(name).parts) - 1
    )


class Members:
    """The names in one archive or tree, of which none may be below a link, and their total size."""

    def __init__(self, max_members: int, max_bytes: int) -> None:
        self._max_members, self._left = max_members, max_bytes
        self._max_bytes = max_bytes
        self._n = 0
        self._links: set[str] = set()

    def add(self, name: str, size: int = 0, *, link: bool = False) -> None:
        """Check the next member.

        Raises:
            UnsafeNameError: its name leads out, it is written through a link, or there is too much.
        """
        self.check(name)
        self._n += 1
        self._left -= size
        if self._n > self._max_members:
            raise UnsafeNameError(f"more than {self._max_members:,} files")
        if size < 0 or self._left < 0:
            raise UnsafeNameError(f"more than {self._max_bytes:,} bytes")
        if link:
            self._links.add(name)

    def check(self, name: str) -> None:
        """Check a name alone.

        Raises:
            UnsafeNameError: it leads out, or is at or below a link.
        """
        at = relative(name)
        while self._links and at:
            if at in self._links:
                raise UnsafeNameError(f"{name[:_SHOWN_CHARS]!r} is at or below a link")
            at = at.rpartition("/")[0]


def unpack_zip(archive: Path, folder: Path) -> None:
    """Unpack a zip file with its files' permissions.

    Raises:
        UnsafeNameError: a member leads out of the folder, or there is too much.
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    import zipfile

    members = Members(MAX_MEMBERS, MAX_UNPACKED_BYTES)
    with zipfile.ZipFile(archive) as zipped:
        for entry in zipped.infolist():
            members.add(entry.filename.removesuffix("/"), entry.file_size)
            path = below(folder, entry.filename.removesuffix("/"))
            if entry.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with zipped.open(entry) as packed, path.open("wb") as file:
                shutil.copyfileobj(packed, file)
            if mode := entry.external_attr >> 16:
                path.chmod(mode & 0o777)


def copy_folder(
    source: Path,
    target: Path,
    *,
    ignore: Callable[[str, list[str]], set[str]] | None = None,
    copy_function: Callable[[str, str], object] = shutil.copy2,
) -> None:
    """Copy a folder whose author may be hostile, with the targets of its links.

    Raises:
        UnsafeNameError: a file is a link out of the folder, or is not a plain file.
        shutil.Error: files could not be copied.
    """

    def checked(folder: str, names: list[str]) -> set[str]:
        ignored = set(ignore(folder, names)) if ignore else set()
        for name in set(names) - ignored:
            check_plain(source, Path(folder, name))
        return ignored

    shutil.copytree(source, target, ignore=checked, copy_function=copy_function)


def check_plain(root: Path, path: Path) -> None:
    """Raise unless a path below a folder is a plain file or folder of that folder.

    Raises:
        UnsafeNameError: it is a link out of the folder, or a device.
    """
    shown = path.relative_to(root)
    if path.is_symlink() and leaves(root, path, in_hub=True):
        raise UnsafeNameError(f"{path}: {shown} is a link out of the folder; replace it by a copy")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UnsafeNameError(f"{path}: {shown} is not a plain file; remove it")


def in_root(root: Path, name: str) -> Path:
    """Resolve a path as a process would whose root directory is `root`. Links never leave it.

    Raises:
        OSError: there are too many links.
    """
    parts, done, n_links = list(reversed(PurePosixPath(f"/{name}").parts[1:])), root, 0
    while parts:
        part = parts.pop()
        if part == "..":
            done = root if done == root else done.parent
            continue
        done = done / part
        if done.is_symlink():
            n_links += 1
            if n_links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
            target = done.readlink()
            done = root if target.is_absolute() else done.parent
            parts += reversed([one for one in target.parts if one != "/"])
    return done


# ── names that other users of this machine know ───────────────────────────────────────────────────


def open_lock(path: Path, mode: int = 0o600) -> int:
    """Return a descriptor of a lock file, which is made if needed, for `fcntl.flock`.

    Raises:
        OSError: it cannot be opened, or is a link or not a plain file.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Not O_CREAT at first: the kernel refuses that for another user's file in /tmp.
        lock = os.open(path, flags)
    except FileNotFoundError:
        lock = os.open(path, flags | os.O_CREAT, mode)
    found = os.fstat(lock)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(lock)
        raise OSError(errno.EINVAL, "a link, or not a plain file", str(path))
    return lock


def is_ours(path: Path) -> bool:
    """Return whether a file or folder is this user's or root's, no link, and nobody else's to write."""
    try:
        found = path.lstat()
    except OSError:
        return False
    # A group with the user's own number has no other members.
    others = 0o002 if found.st_gid == found.st_uid else 0o022
    return (
        not stat.S_ISLNK(found.st_mode)
        and found.st_uid in (0, os.getuid())
        and not found.st_mode & others
    )


def private_folder(root: Path | None = None) -> Path:
    """Return this user's folder on this machine for files of known names, made with mode 0700.

    If another user made the folder in /tmp first, it is one in this user's cache.

    Args:
        root: a folder that all users can write to; default: /tmp, the same for all processes.

    Raises:
        StorageError: neither can be made.
    """
    shared = (root or Path("/tmp")) / f"coding-model-{os.getuid()}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    for folder in (shared, cache / "coding_model_project" / f"node-{os.uname().nodename}"):
        with suppress(OSError):
            if folder is not shared:
                folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        if is_ours(folder) and folder.is_dir() and folder.stat().st_uid == os.getuid():
            return folder
    raise StorageError(
        f"{shared}: belongs to another user, and {cache} cannot be written; remove the former, or set "
        "XDG_CACHE_HOME to a folder of yours"
    )
