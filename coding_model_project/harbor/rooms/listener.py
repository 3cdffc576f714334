"""System calls at which a verifier's processes wait: their arguments, and answers that resume them."""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from dataclasses import dataclass

from coding_model_project.isolation import linux, seccomp, syscalls

_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
_NOTICE, _ANSWER, _ADDED = (
    struct.Struct("=QIIiIQ6Q"),
    struct.Struct("=QqiI"),
    struct.Struct("=QIIII"),
)
_GO_ON = 1
_MAX_PATH, _PAGE, _MAX_WORDS, _MAX_WORD = 4096, 4096, 4096, 1 << 17
_AT_FDCWD = 0xFFFFFF9C


@dataclass(frozen=True, slots=True)
class Call:
    """A system call in which a process waits."""

    id: int
    pid: int
    name: str
    arguments: tuple[int, ...]


class Unreadable(OSError):
    """A process whose memory is not readable, or that has ended."""


class Listener:
    """A receiver of calls. Processes wait until it answers them.

    Args:
        fd: descriptor of the processes' seccomp filter.
        proc: descriptor of a /proc that shows them.
    """

    def __init__(self, fd: int, proc: int) -> None:
        self.fd, self.proc = fd, proc
        column = syscalls.ARCHITECTURES[linux.MACHINE]
        self._names = {syscalls.NUMBERS[name][column]: name for name in (*seccomp.TOLD, "mmap")}

    def receive(self) -> Call | None:
        """Receive the next call; return None if its process ended meanwhile."""
        buffer = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self.fd, _RECEIVE, buffer)
        except OSError:
            return None
        id_, pid, _, number, _, _, *arguments = _NOTICE.unpack(buffer)
        return Call(id_, pid, self._names[number], tuple(arguments))

    def answer(self, call: Call, error: int = 0) -> None:
        """Let a call happen, or make it fail with an error number."""
        answer = _ANSWER.pack(call.id, 0, -error, 0 if error else _GO_ON)
        with suppress(OSError):  # the process ended
            fcntl.ioctl(self.fd, _SEND, answer)

    def give(self, call: Call, descriptor: int) -> int:
        """Copy one of our descriptors into the process, and return its number there.

        Raises:
            OSError: the process ended.
        """
        request = bytearray(_ADDED.pack(call.id, 0, descriptor, 0, 0))
        return fcntl.ioctl(self.fd, _ADD_DESCRIPTOR, request)

    # ── what a call's arguments point to ──────────────────────────────────────────────────────────

    def text(self, pid: int, address: int, max_bytes: int = _MAX_PATH) -> str:
        """Read a string in a process. Raises Unreadable."""
        found = b""
        while b"\0" not in found and len(found) < max_bytes:
            at = address + len(found)
            found += self.memory(pid, at, min(_PAGE - at % _PAGE, max_bytes))
        return os.fsdecode(found.partition(b"\0")[0])

    def words(self, pid: int, address: int) -> list[str]:
        """Read a list of strings in a process, such as its arguments. Raises Unreadable."""
        found: list[str] = []
        while address and len(found) < _MAX_WORDS:
            (word,) = struct.unpack("=Q", self.memory(pid, address + 8 * len(found), 8))
            if not word:
                break
            found.append(self.text(pid, word, _MAX_WORD))
        return found

    def memory(self, pid: int, address: int, n: int) -> bytes:
        try:
            fd = os.open(f"{pid}/mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
            try:
                found = os.pread(fd, n, address)
            finally:
                os.close(fd)
        except (OSError, OverflowError) as error:
            raise Unreadable(str(error)) from error
        if not found:
            raise Unreadable("ended")
        return found

    def path(self, pid: int, folder: int, address: int) -> str:
        """Return the absolute path of a call's folder and path. Raises Unreadable."""
        path = self.text(pid, address)
        if path.startswith("/"):
            return path
        base = "cwd" if folder & 0xFFFFFFFF == _AT_FDCWD else f"fd/{folder & 0xFFFFFFFF}"
        return f"{self.link(pid, base)}/{path}"

    def link(self, pid: int, name: str) -> str:
        """Return the target of a process's link in /proc. Raises Unreadable."""
        try:
            return os.readlink(f"{pid}/{name}", dir_fd=self.proc)
        except OSError as error:
            raise Unreadable(str(error)) from error
