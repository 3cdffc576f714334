"""System calls of an exported task's verifier that protect it from programs."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import time
from contextlib import suppress

NOBODY = 65534

_SET_DUMPABLE, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 4, 36, 38
_PAUSE_S = 0.001
_CAPABILITIES = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)
"""Header of `capset`: version 3, this process."""
_libc = ctypes.CDLL(None)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Landlock's calls, on every architecture."""
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""The rights that files have: to execute, write, read, truncate, and control a device."""
_SIGNALS_AND_SOCKETS = 3
_CLOSED = ("tests", "solution", "logs")


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


def landlock_abi() -> int:
    """Return the kernel's version of Landlock; below 1 if it has none."""
    return _libc.syscall(_CREATE_RULESET, None, 0, 1)


def close_folders() -> None:
    """Deny this process and its children the verifier's folders and, from Linux 6.12, signals to others.

    Nothing else is denied. Without Landlock it does nothing.

    Raises:
        OSError: the kernel refuses.
    """
    abi = landlock_abi()
    if abi < 1:
        return
    rights = (1 << (13, 14, 15, 15, 16)[min(abi, 5) - 1]) - 1
    words = [rights] + [0] * (abi >= 4) + [_SIGNALS_AND_SOCKETS] * (abi >= 6)
    attributes = struct.pack(f"={len(words)}Q", *words)
    rules = _libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    tops = [f"/{name}" for name in os.listdir("/") if name not in _CLOSED]
    if os.path.isdir("/logs"):
        tops += [f"/logs/{name}" for name in os.listdir("/logs") if name != "verifier"]
    failed = rules < 0
    for path in tops:
        if not os.path.islink(path):
            granted = rights if os.path.isdir(path) else rights & _OF_FILES
            opened = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            failed |= _libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", granted, opened), 0) < 0
            os.close(opened)
    _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if failed or _libc.syscall(_RESTRICT_SELF, rules, 0) < 0:
        raise OSError("Landlock refuses the rules")
    os.close(rules)


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
