"""System calls of an exported task's verifier that protect it from programs."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

NOBODY = 65534

_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_PAUSE_S = 0.001
_CAPABILITIES = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)
"""Header of `capset`: version 3, this process."""
_libc = ctypes.CDLL(None)


def hide(*, hidden: bool = True) -> None:
    """Deny this user's other processes access to this one's memory and descriptors, or allow it."""
    _libc.prctl(_SET_DUMPABLE, int(not hidden), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def can_be_nobody() -> bool:
    """Return whether this process may become `nobody`, and `nobody` can run Python."""
    user, group = os.geteuid(), os.getegid()
    if user == NOBODY:
        return False
    try:
        os.setgroups(os.getgroups())
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        for path in (os.__file__, sys.executable):
            os.close(os.open(path, os.O_RDONLY))
        found = os.access(sys.executable, os.X_OK, effective_ids=True)
    except OSError:
        found = False
    os.seteuid(user)
    os.setegid(group)
    return found


def become_nobody() -> None:
    """Become `nobody` irrevocably."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def drop_capabilities() -> None:
    """Drop root's privileges beyond its own files, such as access to hidden processes."""
    _libc.capset(_CAPABILITIES, bytes(24))


# ── processes of a parent that adopts orphans ─────────────────────────────────────────────────────


def watch_children(*, watching: bool = True) -> None:
    """Block SIGCHLD so that `wait` can receive it, or unblock it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignoring it would hide the end of children
    how = signal.SIG_BLOCK if watching else signal.SIG_UNBLOCK
    signal.pthread_sigmask(how, [signal.SIGCHLD])


def wait(pid: int, seconds: float) -> int:
    """Wait for a child, and return its exit code, negative for a signal.

    Raises:
        TimeoutError: it has not ended within `seconds`.
    """
    ends = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        signal.sigtimedwait([signal.SIGCHLD], left)


def end_children(spared: int) -> None:
    """Kill all descendants, including daemons: orphans become children of this process.

    Complete if the kernel lists children: at the end only the spared child, which has none, is listed.

    Args:
        spared: the process id of a child to keep; 0 for none.
    """
    while found := [pid for pid in _children() if pid != spared]:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        n_waited_for = 0
        for pid in found:
            with suppress(ChildProcessError):
                n_waited_for += os.waitpid(pid, os.WNOHANG)[0] == pid
        if not n_waited_for:  # a blocking wait could hang: another process may trace the child
            time.sleep(_PAUSE_S)


def _children() -> list[int]:
    """Return the children of this process, including zombies."""
    try:
        with open("/proc/thread-self/children", "rb") as file:
            return list(map(int, file.read().split()))
    except FileNotFoundError:  # the kernel does not list children
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_ours(pid)]


def _is_ours(pid: int) -> bool:
    with (
        suppress(FileNotFoundError, ProcessLookupError),
        open(f"/proc/{pid}/stat", "rb") as file,
    ):
        return int(file.read().rpartition(b")")[2].split()[1]) == os.getpid()
    return False
