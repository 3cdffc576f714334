"""Whose a file of a room is, when its verifier uses it: by where it lies, by its inode, by its content.

Trusted is what lay in the image or in /tests when these were laid out, and is there unchanged. The kernel
sets the time of an inode's last change, and no process can; a copy, a link, a rename or a new mode
changes it. Everything else is the agent's, or was made in the verifier's time of nobody knows what.
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
    """Whose a file is."""

    system = "system"
    """Below a mount that nothing in a room can write to."""
    image = "image"
    tests = "tests"
    agent = "agent"
    new = "new"
    """Made in the verifier's time, and not a copy of what lay in /tests."""
    missing = "missing"
    """No regular file: nothing is read from it as code."""

    @property
    def trusted(self) -> bool:
        return self not in (Origin.agent, Origin.new)


@dataclass(frozen=True, slots=True)
class Found:
    """Where a path leads."""

    path: str
    """Without links."""
    origin: Origin
    changed_ns: int = 0
    inode: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Made:
    """A room at the time when its image was laid out: the time, and the place of its folders."""

    until_ns: int = 0
    folders: dict[str, int] = field(default_factory=dict)

    @classmethod
    def now(cls) -> Made:
        """To be called before anything of the agent's runs."""
        return cls(tick(), {path: found.st_ino for path, found in _own("/") if _is_folder(found)})


class Provenance:
    """The known facts about the files of a room from the moment at which the agent was gone.

    Args:
        made: of the same room.
    """

    def __init__(self, made: Made) -> None:
        self._made = made
        self._until_ns = tick()
        tops = ("/", "/etc", "/dev/shm")
        self._agents = {_inode(found) for top in tops for _, found in _own(top)}
        self._laid: dict[str, tuple[int, int]] = {}
        """By path below /tests: inode, and when it last changed."""
        self._contents: dict[str, str] = {}
        """By path below /tests: a hash."""
        self._tests_device = -1
        self._system: dict[str, Found] = {}
        self.literals = Literals()

    def lay(self) -> None:
        """Trust what lies in /tests now, before the verifier's first command."""
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
        """Where a path leads, and whose it is: the agent's if a link of the agent's leads there."""
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
        """Of a file that appeared, or changed, in the verifier's time: a copy of a test is a test."""
        if stat.S_ISLNK(found.st_mode) or not 0 < found.st_size <= _MAX_HASHED:
            return Origin.new
        content = _content(path)
        if hashlib.sha256(content).hexdigest() in self._contents.values():
            return Origin.tests
        return Origin.tests if self.literals.is_script(content) else Origin.new

    def _stayed(self, path: str, device: int) -> bool:
        """Return true if the folders above are the image's: a folder that moves changes no file in it."""
        if device != os.lstat("/").st_dev:
            return True
        while path != "/":
            path = os.path.dirname(path)
            if self._made.folders.get(path) != os.lstat(path).st_ino:
                return False
        return True


def tick() -> int:
    """The time, once every later change of a file gets a later one: the clock of files is coarse."""
    now = time.time_ns()
    while time.clock_gettime_ns(5) <= now:  # CLOCK_REALTIME_COARSE
        time.sleep(0.0005)
    return now


def _own(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """All on a folder's own file system, itself included."""
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
