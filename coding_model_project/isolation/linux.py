"""Linux system calls that Python does not offer, through ctypes, for x86_64 and aarch64."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coding_model_project.isolation import seccomp

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the GIL, so usable around clone()
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long

MACHINE = os.uname().machine
_COLUMN = seccomp.ARCHITECTURES.get(MACHINE)

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x2000000, 0x4000000
CLONE_NEWIPC, CLONE_NEWUSER = 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
MS_REC, MS_PRIVATE, MNT_DETACH = 16384, 1 << 18, 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _AT_FDCWD, _AT_RECURSIVE = 1, 2, -100, 0x8000
_AT_EMPTY_PATH = 0x1000
_M_ARENA_MAX = -8
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38


def number(name: str) -> int:
    """Return a system call's number on this machine; -1 if it has none.

    Raises:
        OSError: the machine's architecture is not supported.
    """
    if _COLUMN is None:
        raise OSError(errno.ENOSYS, f"no system call table for {MACHINE}")
    return seccomp.NUMBERS[name][_COLUMN]


Argument = int | str | bytes | ctypes.Array[Any] | None


class SystemCall(NamedTuple):
    """A prepared system call: arguments are converted, and their targets are in memory.

    A forked process shares its parent's memory, and each page that it touches is copied (2 µs). So the
    calls of every test's process are prepared before the fork.
    """

    name: str
    arguments: tuple[Any, ...]
    """The arguments of `syscall`: the call's number first."""

    @classmethod
    def ready(cls, name: str, *arguments: Argument) -> SystemCall:
        """Prepare a call.

        Args:
            arguments: numbers; data to point to, text with a trailing zero; None for NULL.

        Raises:
            OSError: the machine's architecture is not supported.
        """
        return cls(name, (ctypes.c_long(number(name)), *map(_converted, arguments)))

    def make(self) -> int:
        """Make the call and return its result; raise OSError with its name."""
        result = _syscall(*self.arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), self.name)
        return result


def _converted(argument: Argument) -> Any:
    match argument:
        case None:
            return ctypes.c_void_p(None)
        case str():
            return ctypes.create_string_buffer(argument.encode())
        case bytes():
            return ctypes.create_string_buffer(argument, len(argument))
        case int():
            return ctypes.c_long(argument)
        case _:
            return argument


def call(name: str, *arguments: Argument) -> int:
    """Make a system call now and return its result; raise OSError with its name."""
    return SystemCall.ready(name, *arguments).make()


def unshare(flags: int) -> None:
    call("unshare", flags)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> SystemCall:
    return SystemCall.ready("mount", source or None, target, kind or None, flags, data or None)


def pivot_root(new: str, old: str) -> None:
    call("pivot_root", new, old)


def unmounting(target: str) -> SystemCall:
    """Return the call that takes a mount away, at once for new users and later for those that have it."""
    return SystemCall.ready("umount2", target, MNT_DETACH)


def unmount(target: str) -> None:
    unmounting(target).make()


def make_read_only(target: str) -> None:
    """Make a mount and all mounts below it read-only, without set-uid programs."""
    attributes = struct.pack("4Q", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    call("mount_setattr", _AT_FDCWD, target, _AT_RECURSIVE, attributes, len(attributes))


def sethostname(name: str) -> None:
    call("sethostname", name, len(name))


def change_directory(path: str) -> SystemCall:
    return SystemCall.ready("chdir", path)


def make_directory(path: str) -> SystemCall:
    """Return the call that makes a folder that others may read; its parent must exist."""
    return SystemCall.ready("mkdirat", _AT_FDCWD, path, 0o755)


def execute(fd: int, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process by the program in a file; returns only by raising OSError."""
    argv, envp = (
        (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)
        for words in (arguments, [f"{name}={value}" for name, value in environment.items()])
    )
    call("execveat", fd, "", argv, envp, _AT_EMPTY_PATH)


def duplicate(descriptor: int, to: int) -> SystemCall:
    return SystemCall.ready("dup3", descriptor, to, 0)


def close(descriptor: int) -> SystemCall:
    return SystemCall.ready("close", descriptor)


def close_from(first: int, last: int = 0xFFFFFFFF) -> SystemCall:
    """Return the call that closes the descriptors from `first` to `last`."""
    return SystemCall.ready("close_range", first, last, 0)


def limit(kind: int, value: int) -> SystemCall:
    """Return the call that sets a limit (`resource.RLIMIT_…`), at most to this process's hard limit."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    return SystemCall.ready("prlimit64", 0, kind, struct.pack("QQ", value, value), None)


def memory_file(name: str, n_bytes: int = 0) -> int:
    """Return a descriptor of a new file in memory; a room denies those, and gets one without a name.

    Args:
        n_bytes: free space that it must have.

    Raises:
        OSError: there is no place for it: programs shall not fail for what is no fault of theirs.
    """
    try:
        return os.memfd_create(name)
    except PermissionError:
        made = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
    space = os.fstatvfs(made)
    if space.f_blocks and space.f_bavail * space.f_frsize < n_bytes:
        os.close(made)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp")
    return made


def lowest(descriptor: int) -> int:
    """Move a descriptor to the lowest free number.

    A host with many open files may pass one of the numbers that `confine` gives to tests.
    """
    low = os.dup(descriptor)
    os.close(descriptor)
    return low


def use_one_arena() -> None:
    """Have all threads of this process and its forks allocate from one arena of the C library.

    Each further arena takes 64 MiB of address space, and there may be eight for each core.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, 1)


def die_with_parent() -> SystemCall:
    """Return the call that kills the process when its parent ends; a no-op if it has already ended."""
    return SystemCall.ready("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def end_with(parent: int) -> None:
    """Make this process die with its parent; end it now if the parent has already ended."""
    die_with_parent().make()
    if os.getppid() != parent:
        os._exit(1)


def hide_memory() -> None:
    """Make this process not dumpable: processes of the same user can neither trace nor read it."""
    call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def own_proc_entries() -> None:
    """Make this process dumpable: its user owns the files below /proc/self and can write them."""
    call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)


def adopt_orphans() -> None:
    call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def no_new_privileges() -> SystemCall:
    return SystemCall.ready("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities() -> SystemCall:
    return SystemCall.ready("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))


def fork(namespaces: int = 0) -> int:
    """Fork, with the child in new namespaces; return its id, or 0 in the child."""
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
_WRITE_FOLDER = _WRITE_FILE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8
# and remove and make folders and files in it, but no links


def landlock_abi() -> int:
    """Return the kernel's Landlock version; 0 without Landlock."""
    try:
        return call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def landlock_ruleset(abi: int, readable: Sequence[str], writable: Sequence[str] = ()) -> int:
    """Return a descriptor of rules: only `readable` paths; no TCP; no signals out (ABI 6).

    Args:
        writable: those of `readable` that may also be written; in folders, files and folders may be
            made and removed.
    """
    rights = _FS_RIGHTS.get(abi, (1 << 16) - 1)
    words = [rights] + ([3] if abi >= 4 else []) + ([3] if abi >= 6 else [])
    attributes = struct.pack(f"{len(words)}Q", *words)
    ruleset = call("landlock_create_ruleset", attributes, len(attributes), 0)
    for path in readable:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        folder = os.path.isdir(path)
        allowed = _READ_ONLY if folder else _READ_ONLY_FILE
        if path in writable:
            allowed |= rights & (_WRITE_FOLDER if folder else _WRITE_FILE)
        rule = struct.pack("=QI", allowed, fd)
        call("landlock_add_rule", ruleset, 1, rule, 0)
        os.close(fd)
    return ruleset


def landlock_restrict(ruleset: int) -> SystemCall:
    return SystemCall.ready("landlock_restrict_self", ruleset, 0)


# ── seccomp ───────────────────────────────────────────────────────────────────────────────────────


class Filter:
    """A filter that denies processes, exec, sockets, mounts, changes to file attributes, and signals
    to others (`seccomp`), prepared for this machine.

    Args:
        granted: further calls (`seccomp.program`).

    Raises:
        OSError: the machine's architecture is not supported.
    """

    def __init__(self, granted: Mapping[str, str] = {}) -> None:
        number("seccomp")
        code = seccomp.program(MACHINE, granted)
        self._program = ctypes.create_string_buffer(code, len(code))
        own_pid = struct.pack("I", seccomp.OWN_PID)
        self.own_pid = tuple(
            ctypes.c_uint32.from_buffer(self._program, at)
            for at in range(4, len(code), 8)
            if code[at : at + 4] == own_pid
        )
        """Places in the program for the process's own id."""
        header = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(self._program))
        self.call = SystemCall.ready("seccomp", 1, 0, header)

    def install(self) -> int:
        """Put this process and its later threads under the filter; return the listener, if any."""
        own_pid = os.getpid()
        for place in self.own_pid:
            place.value = own_pid
        return self.call.make()
