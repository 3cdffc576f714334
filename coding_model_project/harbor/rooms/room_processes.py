"""Facts about a room's processes from /proc: owner, program, open files and waiting input."""

from __future__ import annotations

import fcntl
import os
import select
import stat
from contextlib import suppress

from coding_model_project.harbor.rooms.listener import Listener, Unreadable
from coding_model_project.isolation import linux

VERIFIERS, GUARDED, AGENTS = 1000, 998, 999
"""Values of oom_score_adj: for the verifier's processes, for those with an active guard, and for the
agent's."""

MAX_SCRIPT_BYTES = 1 << 20
"""Maximum bytes of a script to scan."""


class RoomProcesses:
    """Facts about the processes whose calls `listener` receives.

    Args:
        outputs: inodes of the pipes that only the log reads.
    """

    def __init__(self, listener: Listener, outputs: set[int]) -> None:
        self._listener, self._outputs = listener, outputs

    def owner(self, pid: int) -> int:
        """Return a process's owner, as set by `mark`.

        Raises:
            Unreadable: the process is gone.
        """
        try:
            return int(self._entry(pid, "oom_score_adj"))
        except (OSError, ValueError) as error:
            raise Unreadable(str(error)) from error

    def mark(self, pid: int, owner: int) -> None:
        """Set the owner of a process, which its future children inherit."""
        fd = os.open(f"{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._listener.proc)
        try:
            os.write(fd, str(owner).encode())
        finally:
            os.close(fd)

    def program(self, pid: int) -> str:
        """Return the name of the file that a process executes."""
        return os.path.basename(self._listener.link(pid, "exe"))

    def group(self, thread: int) -> int:
        """Return the process of a thread."""
        with suppress(OSError):
            for line in self._entry(thread, "status").splitlines():
                if line.startswith(b"Tgid:"):
                    return int(line.split()[1])
        return thread

    def links(self, pid: int) -> list[str]:
        """Return a process's open files.

        Raises:
            Unreadable: the process is gone.
        """
        try:
            folder = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._listener.proc)
        except OSError as error:
            raise Unreadable(str(error)) from error
        try:
            return [self._listener.link(pid, f"fd/{name}") for name in os.listdir(folder)]
        finally:
            os.close(folder)

    def is_heard(self, pid: int) -> bool:
        """Return whether another process reads its output through a pipe."""
        with suppress(OSError):
            found = os.stat(f"{pid}/fd/1", dir_fd=self._listener.proc)
            return stat.S_ISFIFO(found.st_mode) and found.st_ino not in self._outputs
        return False

    def waiting_input(self, pid: int) -> bytes:
        """Peek at the waiting bytes of a process's standard input.

        Raises:
            Unreadable: the input cannot be opened.
        """
        try:
            fd = os.open(f"{pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK, dir_fd=self._listener.proc)
        except OSError as error:
            raise Unreadable(str(error)) from error
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.pread(fd, MAX_SCRIPT_BYTES, 0)
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                return b""
            return _peek(fd)
        finally:
            os.close(fd)

    def _entry(self, pid: int, name: str) -> bytes:
        fd = os.open(f"{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._listener.proc)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)


def _peek(fd: int) -> bytes:
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, MAX_SCRIPT_BYTES)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not any(event & select.POLLHUP for _, event in poll.poll(0)):
            return b""  # a writer may still add to it
        n = linux.call("tee", fd, writer, MAX_SCRIPT_BYTES, 2)
        return os.read(reader, n) if n else b""
    finally:
        os.close(reader)
        os.close(writer)
