"""In an exported task: what the verifier asks of the kernel, so that programs stay away from it."""

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
    """Keep other processes of this user out of this one's memory and descriptors, or let them in."""
    _libc.prctl(_SET_DUMPABLE, int(not hidden), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def can_be_nobody() -> bool:
    """Return true if this process may become another user, who can run Python too."""
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
    """Change the user for good."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def drop_capabilities() -> None:
    """Give up what root may do beyond its own files: to look into a hidden process above all."""
    _libc.capset(_CAPABILITIES, bytes(24))


# ── processes of a parent that adopts orphans ─────────────────────────────────────────────────────


def watch_children(*, watching: bool = True) -> None:
    """Let `wait` be woken by the end of a child, or no longer."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it is told of no child's end
    how = signal.SIG_BLOCK if watching else signal.SIG_UNBLOCK
    signal.pthread_sigmask(how, [signal.SIGCHLD])


def wait(pid: int, seconds: float) -> int:
    """Return the exit code of a child, negative for a signal.

    Raises:
        TimeoutError: it has not ended by then.
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
    """Kill all that this process has started, daemons too: they become its children once orphaned.

    Exact where the kernel lists children: the spared one has none, and is alone in the list in the end.

    Args:
        spared: a child that stays; 0 for none.
    """
    while found := [pid for pid in _children() if pid != spared]:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        n_waited_for = 0
        for pid in found:
            with suppress(ChildProcessError):
                n_waited_for += os.waitpid(pid, os.WNOHANG)[0] == pid
        if not n_waited_for:  # not by blocking: one may be held by another that traces it
            time.sleep(_PAUSE_S)


def _children() -> list[int]:
    """Children of this process, those that have ended and are not yet waited for too."""
    try:
        with open("/proc/thread-self/children", "rb") as file:
            return list(map(int, file.read().split()))
    except FileNotFoundError:  # a kernel without such lists
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_ours(pid)]


def _is_ours(pid: int) -> bool:
    with (
        suppress(FileNotFoundError, ProcessLookupError),
        open(f"/proc/{pid}/stat", "rb") as file,
    ):
        return int(file.read().rpartition(b")")[2].split()[1]) == os.getpid()
    return False
