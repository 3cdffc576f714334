"""The origin of a room's file when its verifier uses it, by path, inode and content.

Trusted files are those that were in the image or in /tests when these were laid out, and are unchanged.
Only the kernel sets the time of an inode's last change; copies, links, renames and new modes change it.
Every other file is the agent's, or was created during the verifier's run from an unknown source.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from coding_model_project.harbor.rooms.expansions import Literals

TESTS = "/tests"
_MACHINE = (
    "/proc/",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
)
_DESCRIPTOR = re.compile(r"/proc/[^/]+/(task/[^/]+/)?fd/|/dev/(fd/|stdin|stdout|stderr)")
_MAX_LINKS = 40
_MAX_HASHED = 16 << 20


class Origin(Enum):
    """The origin of a file."""

    system = "system"
    """A mount that nothing in a room can write to."""
    image = "image"
    tests = "tests"
    agent = "agent"
    new = "new"
    """Created during the verifier's run, and not a copy of a file in /tests."""
    missing = "missing"
    """Not a regular file, so that no code is read from it."""

    @property
    def trusted(self) -> bool:
        return self not in (Origin.agent, Origin.new)


@dataclass(frozen=True, slots=True)
class Found:
    """The file at a path."""

    path: str
    """The path without links."""
    origin: Origin
    changed_ns: int = 0
    inode: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Made:
    """The state of a room after its image was laid out: the time, and the inodes of its folders."""

    until_ns: int = 0
    folders: dict[str, int] = field(default_factory=dict)

    @classmethod
    def now(cls) -> Made:
        """Record the current state. Call it before any agent code runs."""
        return cls(tick(), {path: found.st_ino for path, found in _own("/") if _is_folder(found)})


class Provenance:
    """Origins of a room's files, for the time after the agent is gone.

    Args:
        made: state of the same room.
    """

    def __init__(self, made: Made) -> None:
        self._made = made
        self._until_ns = tick()
        tops = ("/", "/etc", "/dev/shm")
        self._agents = {_inode(found) for top in tops for _, found in _own(top)}
        self._laid: dict[str, tuple[int, int]] = {}
        """By path below /tests: inode, and time of its last change."""
        self._contents: dict[str, str] = {}
        """By path below /tests: hash of the content."""
        self._tests_device = -1
        self._system: dict[str, Found] = {}
        self.literals = Literals()

    def lay(self) -> None:
        """Trust the current files in /tests. Call it before the verifier's first command."""
        if self._tests_device >= 0:
            return
        self._tests_device = os.stat(TESTS).st_dev
        for path, found in _own(TESTS):
            if stat.S_ISREG(found.st_mode):
                self._laid[path] = (found.st_ino, found.st_ctime_ns)
                content = _content(path)
                self._contents[path] = hashlib.sha256(content).hexdigest()
                self.literals.add(path, content)

    def find(self, path: str) -> Found:
        """Return a path's file and origin; the origin is the agent if one of its links leads there."""
        known = self._system.get(path)
        if known is not None:
            return known
        found = self._find(path)
        if found.origin is Origin.system:
            self._system[path] = found
        return found

    def _find(self, path: str) -> Found:
        real, by_agent = "/", False
        parts, links = path.split("/")[::-1], 0
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            if part == "..":
                real = os.path.dirname(real)
                continue
            real = os.path.join(real, part)
            whole = os.path.join(real, *parts[::-1])
            if _DESCRIPTOR.match(whole):
                return Found(whole, Origin.new)
            if whole.startswith(_MACHINE):
                return Found(whole, Origin.missing)
            try:
                found = os.lstat(real)
            except OSError:
                return Found(real, Origin.missing)
            if stat.S_ISLNK(found.st_mode):
                by_agent = by_agent or not self._of(real, found).trusted
                links += 1
                if links > _MAX_LINKS:
                    return Found(real, Origin.missing)
                target = os.readlink(real)
                real = "/" if target.startswith("/") else os.path.dirname(real)
                parts += target.split("/")[::-1]
        found = os.lstat(real)
        if stat.S_ISDIR(found.st_mode):
            return Found(real, Origin.missing)
        origin = self._of(real, found)
        if by_agent and origin.trusted:
            origin = Origin.agent
        return Found(real, origin, found.st_ctime_ns, _inode(found))

    def _of(self, path: str, found: os.stat_result) -> Origin:
        mounted = os.path.dirname(path) if stat.S_ISLNK(found.st_mode) else path
        if os.statvfs(mounted).f_flag & os.ST_RDONLY:
            return Origin.system
        if found.st_dev == self._tests_device:
            if self._laid.get(path) == (found.st_ino, found.st_ctime_ns):
                return Origin.tests
            return self._new(path, found)
        if found.st_ctime_ns <= self._made.until_ns and self._stayed(path, found.st_dev):
            return Origin.image
        if found.st_ctime_ns <= self._until_ns or _inode(found) in self._agents:
            return Origin.agent
        return self._new(path, found)

    def _new(self, path: str, found: os.stat_result) -> Origin:
        """Return the origin of a file changed during the verifier's run; copies of tests are tests."""
        if stat.S_ISLNK(found.st_mode) or not 0 < found.st_size <= _MAX_HASHED:
            return Origin.new
        content = _content(path)
        if hashlib.sha256(content).hexdigest() in self._contents.values():
            return Origin.tests
        return Origin.tests if self.literals.is_script(content) else Origin.new

    def _stayed(self, path: str, device: int) -> bool:
        """Return whether all parent folders are the image's, since moving one changes no file in it."""
        if device != os.lstat("/").st_dev:
            return True
        while path != "/":
            path = os.path.dirname(path)
            if self._made.folders.get(path) != os.lstat(path).st_ino:
                return False
        return True


def tick() -> int:
    """Return the time, after waiting until the coarse clock of files is past it."""
    now = time.time_ns()
    while time.clock_gettime_ns(5) <= now:  # CLOCK_REALTIME_COARSE
        time.sleep(0.0005)
    return now


def _own(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything on a folder's own file system, including the folder itself."""
    try:
        first = os.lstat(top)
    except OSError:
        return
    yield top, first
    pending = [top]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if found.st_dev == first.st_dev:
                    yield entry.path, found
                    if stat.S_ISDIR(found.st_mode):
                        pending.append(entry.path)


def _is_folder(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode)


def _inode(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _content(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read(_MAX_HASHED)
