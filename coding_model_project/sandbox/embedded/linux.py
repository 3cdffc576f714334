"""The Linux calls that Python does not offer, by ctypes, for x86_64 and aarch64."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.sandbox.embedded import seccomp, syscalls

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the GIL, so usable around clone()
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long

MACHINE = platform.machine()
_COLUMN = syscalls.ARCHITECTURES.get(MACHINE)

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x2000000, 0x4000000
CLONE_NEWIPC, CLONE_NEWUSER = 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE, MNT_DETACH = 16384, 1 << 18, 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _AT_FDCWD, _AT_RECURSIVE = 1, 2, -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38


def number(name: str) -> int:
    """A system call's number on this machine; -1 if it has none.

    Raises:
        OSError: the machine's architecture is not supported.
    """
    if _COLUMN is None:
        raise OSError(errno.ENOSYS, f"no system call table for {MACHINE}")
    return syscalls.NUMBERS[name][_COLUMN]


def call(name: str, *arguments: object) -> int:
    """Make a system call; raises OSError with its name."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = _syscall(ctypes.c_long(number(name)), *converted)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def unshare(flags: int) -> None:
    call("unshare", flags)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    def text(value: str) -> ctypes.c_char_p:
        return ctypes.c_char_p(value.encode() if value else None)

    call("mount", text(source), text(target), text(kind), flags, text(data))


def pivot_root(new: str, old: str) -> None:
    call("pivot_root", ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def unmount(target: str) -> None:
    call("umount2", ctypes.c_char_p(target.encode()), MNT_DETACH)


def make_read_only(target: str) -> None:
    """A mount and all mounts below it: read-only, without set-uid programs."""
    attributes = struct.pack("4Q", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    path = ctypes.c_char_p(target.encode())
    call("mount_setattr", _AT_FDCWD, path, _AT_RECURSIVE, ctypes.c_char_p(attributes), 32)


def sethostname(name: str) -> None:
    call("sethostname", ctypes.c_char_p(name.encode()), len(name))


def close_range(first: int) -> None:
    """Close every descriptor from this one up."""
    call("close_range", first, 0xFFFFFFFF, 0)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends.

    Args:
        parent: its process id. If it ended before this call, this process ends here: the kernel would
            never tell. None in a PID namespace of one's own, where the parent has no id.
    """
    call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def hide_memory() -> None:
    """Not dumpable: processes of the same user can neither trace nor read this one."""
    call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def no_new_privileges() -> None:
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def fork(namespaces: int = 0) -> int:
    """Fork, the child in new namespaces. 0 in the child."""
    if not namespaces:
        return os.fork()
    ctypes.pythonapi.PyOS_BeforeFork()
    flags = ctypes.c_long(namespaces | signal.SIGCHLD)
    pid = _syscall(ctypes.c_long(number("clone")), flags, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, os.strerror(code), "clone")
    return pid


# ── Landlock ──────────────────────────────────────────────────────────────────────────────────────

_FS_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_READ_ONLY = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
_READ_ONLY_FILE = 1 << 0 | 1 << 2
_WRITE_FILE = 1 << 1 | 1 << 14  # and truncate it


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 without."""
    try:
        return call("landlock_create_ruleset", ctypes.c_void_p(None), 0, 1)
    except OSError:
        return 0


def landlock_ruleset(abi: int, readable: Sequence[str], writable: Sequence[str] = ()) -> int:
    """A descriptor of rules: only `readable` paths; no TCP; no signals out (ABI 6).

    Args:
        writable: those that may also be written to; no directories.
    """
    rights = _FS_RIGHTS.get(abi, (1 << 16) - 1)
    words = [rights] + ([3] if abi >= 4 else []) + ([3] if abi >= 6 else [])
    attributes = struct.pack(f"{len(words)}Q", *words)
    ruleset = call("landlock_create_ruleset", ctypes.c_char_p(attributes), len(attributes), 0)
    for path in readable:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = _READ_ONLY if Path(path).is_dir() else _READ_ONLY_FILE
        if path in writable:
            allowed |= rights & _WRITE_FILE
        rule = struct.pack("=QI", allowed, fd)
        call("landlock_add_rule", ruleset, 1, ctypes.c_char_p(rule), 0)
        os.close(fd)
    return ruleset


def landlock_restrict(ruleset: int) -> None:
    call("landlock_restrict_self", ruleset, 0)


# ── seccomp ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter without processes, exec, sockets, mounts, changes to files' attributes, or signals
    to others (`seccomp`)."""

    template: bytes

    @classmethod
    def build(cls) -> Filter:
        """The filter for this machine, made once; `install` puts in the process's own id.

        Raises:
            OSError: the machine's architecture is not supported.
        """
        number("seccomp")
        return cls(seccomp.program(MACHINE))

    def install(self) -> None:
        """From here on this process, and its threads, are under the filter."""
        placeholder, own = (struct.pack("I", pid) for pid in (seccomp.OWN_PID, os.getpid()))
        program = self.template.replace(placeholder, own)
        buffer = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
        call("seccomp", 1, 0, ctypes.byref(ctypes.create_string_buffer(header, len(header))))
