"""Confinement of a process: irrevocably drops every right that it does not need to run one test."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from coding_model_project.isolation import linux


class Limits(NamedTuple):
    """Resource limits of one process, as in `types.Limits`."""

    cpu_s: float = 5.0
    wall_s: float = 15.0
    memory_mb: int = 512
    output_kb: int = 1024


class Tier(str, Enum):  # noqa: UP042 - StrEnum is missing in Python 3.10, where the driver may run
    """Isolation levels of a test, defined from weakest to strongest."""

    __str__ = str.__str__
    __format__ = str.__format__

    rlimit = "rlimit"
    """Resource limits only: network and files stay open. Never selected silently."""
    seccomp = "seccomp"
    """Landlock and seccomp: nothing writable, little readable, no network, no processes."""
    namespaces = "namespaces"
    """Like `seccomp`, plus its own root, without network, processes or users of the host."""

    def at_least(self, other: Tier) -> bool:
        """Return whether this tier isolates at least as strongly as the other."""
        order = list(Tier)
        return order.index(self) >= order.index(other)


PROC = "/proc"
_STREAMS = {
    "dev/fd": "/proc/self/fd",
    "dev/stdin": "/proc/self/fd/0",
    "dev/stdout": "/proc/self/fd/1",
    "dev/stderr": "/proc/self/fd/2",
}
MEMORY_MARGIN = 48 << 20
"""Bytes of address space that a test gets above its limit, for thread stacks and allocator arenas."""

_STACK = 120 << 20
"""Most bytes of the main thread's stack: honest programs also recurse through C functions."""

SCRATCH = "/tmp"
"""A test's own working folder, removed with the test (tier namespaces)."""
_SCRATCH_BYTES, _SCRATCH_FILES = 8 << 20, 512
"""Limits on the size and number of the files that a test writes there."""

MAX_DESCRIPTORS = 64
_RLIMIT_SIGPENDING = 11  # Python has no name for it
_PENDING_SIGNALS = 256
"""Most queued signals; timers count as such."""

FIRST_KEPT = 200
"""First of the descriptors that a test keeps: its parent puts them here, and they become 0, 1, 2, …"""

_PREFIXES = {"/usr/lib" if prefix == "/usr" else prefix for prefix in (sys.base_prefix, sys.prefix)}
READABLE = (
    *sorted(_PREFIXES),
    "/usr/lib",
    "/lib",
    "/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
)
"""All host files that a test may see, read-only."""


_BELOW_SCRATCH = [
    path.removeprefix(f"{SCRATCH}/") for path in READABLE if path.startswith(f"{SCRATCH}/")
]
"""Readable paths below `SCRATCH`, such as a Python environment, which its mount would hide."""


class Confinement(NamedTuple):
    """Confinement that a zygote prepares once for all its tests."""

    tier: Tier
    base_address_space: int
    """Bytes of address space that a test has before it runs, with the margin; its limit is on top."""
    landlock: int | None = None
    """Descriptor of the Landlock rule set of tier seccomp."""
    filter: linux.Filter | None = None
    """The seccomp filter of every tier except rlimit."""
    proc: int | None = None
    """Descriptor of the host's /proc, where P counts a test's threads; a test never gets it."""

    @property
    def namespaces(self) -> int:
        """Flags for the new namespaces of each test.

        Not of IPC, which the filter denies: all tests are in the zygote's.
        """
        return linux.CLONE_NEWPID | linux.CLONE_NEWNS if self.tier is Tier.namespaces else 0

    @property
    def has_common_scratch(self) -> bool:
        """True if tests that follow each other may use one `SCRATCH` in turn (`fork_server`).

        The end of a mount namespace waits for all cores (`synchronize_rcu_expedited`), which costs a test
        more than all else that confines it.
        """
        return self.tier is Tier.namespaces and not _BELOW_SCRATCH


def prepare(
    tier: Tier, readable: Sequence[str] = (), granted: Mapping[str, str] | None = None
) -> Confinement:
    """Enter the tier's namespaces; call it once in a zygote, after its imports and before any test.

    Args:
        readable: further host files and folders that its tests see.
        granted: further system calls (`seccomp.program`).

    Raises:
        OSError: this machine does not allow the tier.
    """
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    base = pages * resource.getpagesize() + MEMORY_MARGIN
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if tier is Tier.rlimit:
        return Confinement(tier=tier, base_address_space=base, proc=proc)
    ruleset = None
    readable = (*READABLE, *readable)
    if tier is Tier.namespaces:
        _enter_namespaces(readable)
    else:
        abi = linux.landlock_abi()
        if not abi:
            raise OSError("the kernel has no Landlock, which tier seccomp needs to close files")
        opened = linux.landlock_ruleset(abi, readable, writable=["/dev/null"])
        ruleset = os.dup2(opened, FIRST_KEPT - 1, inheritable=False)  # below a test's descriptors
        os.close(opened)
    return Confinement(
        tier=tier,
        base_address_space=base,
        landlock=ruleset,
        filter=linux.Filter(granted or {}),
        proc=proc,
    )


def _enter_namespaces(readable: Sequence[str]) -> None:
    """Enter a user namespace with a read-only root of a few bind mounts, and no network."""
    new_namespaces(1000)
    root = mount_point(readable)
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("root", root, "tmpfs", flags, "size=1m,mode=755").make()
    bound: list[str] = []
    for path in readable:
        if not os.path.exists(path) or any(_is_below(path, parent) for parent in bound):
            continue
        if os.path.islink(path) and path.count("/") == 1:  # /lib -> usr/lib
            os.symlink(os.readlink(path), root + path)
            continue
        bind(path, root + path)
        bound.append(path)
    if PROC in readable:  # each test mounts its own there
        for name, target in _STREAMS.items():
            os.symlink(target, f"{root}/{name}")
    for name in ("tmp", "old"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    os.chdir(root)
    linux.pivot_root(".", "old")
    os.chdir("/")
    linux.unmount("/old")
    os.rmdir("/old")
    linux.make_read_only("/")
    linux.sethostname("sandbox")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def new_namespaces(uid: int) -> None:
    """Enter new namespaces, except of processes, where this user and its group have the id `uid`.

    Raises:
        OSError: this machine does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    linux.unshare(
        linux.CLONE_NEWUSER
        | linux.CLONE_NEWNS
        | linux.CLONE_NEWNET
        | linux.CLONE_NEWIPC
        | linux.CLONE_NEWUTS
        | linux.CLONE_NEWCGROUP
    )
    write("/proc/self/setgroups", b"deny")
    write("/proc/self/uid_map", b"%d %d 1" % (uid, user))
    write("/proc/self/gid_map", b"%d %d 1" % (uid, group))
    linux.mount("", "/", "", linux.MS_REC | linux.MS_PRIVATE).make()


def mount_point(readable: Sequence[str]) -> str:
    """Return a directory to build the new root on that hides none of the `readable` paths."""
    for name in ("/mnt", "/media", "/srv", "/opt", "/tmp", "/var/tmp", "/dev/shm"):
        if os.path.isdir(name) and not any(_is_below(os.path.realpath(p), name) for p in readable):
            return name
    raise OSError("no directory to build a root on")


def bind(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Mount a host's file or folder, and what is mounted below it, at a new path."""
    path, target = os.fspath(path), os.fspath(target)
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        write(target, b"")
    linux.mount(path, target, "", linux.MS_BIND | linux.MS_REC).make()


class Steps(NamedTuple):
    """System calls that confine a process to one test, prepared before it is forked."""

    enter: tuple[linux.SystemCall, ...]
    restrict: tuple[linux.SystemCall, ...]
    filter: linux.Filter | None

    def take(self, files: Mapping[str, bytes]) -> None:
        """Confine this process and write its files into its working directory.

        Raises:
            OSError: a step failed; the process must then not run the program.
        """
        for step in self.enter:
            step.make()
        write_files(files)
        for step in self.restrict:
            step.make()
        if self.filter is not None:
            self.filter.install()


class Room(NamedTuple):
    """Space for the files of a process."""

    n_bytes: int = 0
    """Bytes in whole pages, as an in-memory file system allocates them."""
    n_entries: int = 0
    """Number of files and of the folders above them."""

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Room:
        """Return the space for files of these sizes, by their paths."""
        page = resource.getpagesize()
        folders = {folder for path in sizes for folder in _above(path)}
        return cls(
            n_bytes=sum(-(-size // page) * page for size in sizes.values()),
            n_entries=len(sizes) + len(folders),
        )


NO_FILES = Room()


@lru_cache(maxsize=64)
def steps(
    confinement: Confinement, limits: Limits, n_descriptors: int, room: Room | None = NO_FILES
) -> Steps:
    """Return the steps for a process that keeps `n_descriptors`; they close all others.

    Args:
        room: space in its own `SCRATCH`; None to use the one that is there.
    """
    kept = [FIRST_KEPT + i for i in range(n_descriptors)]
    if confinement.landlock is not None:
        kept.append(confinement.landlock)
    enter = [linux.duplicate(descriptor, to=i) for i, descriptor in enumerate(kept)]
    enter += [linux.close_from(len(kept)), linux.die_with_parent()]
    if confinement.tier is not Tier.namespaces:
        enter += [linux.change_directory("/")]
    elif room is None:
        enter += [linux.change_directory(SCRATCH)]
    else:
        enter += scratch(room)
    memory = confinement.base_address_space + (limits.memory_mb << 20)
    restrict = [
        linux.limit(resource.RLIMIT_AS, memory),
        linux.limit(resource.RLIMIT_STACK, _STACK),
        *common_limits(limits),
        *sealing(confinement, n_descriptors if confinement.landlock is not None else None),
    ]
    return Steps(enter=tuple(enter), restrict=tuple(restrict), filter=confinement.filter)


def scratch(room: Room) -> list[linux.SystemCall]:
    """Return the calls that mount the process's own working folder, with space for its files."""
    return [
        linux.change_directory(SCRATCH),  # the next mount covers it; bind mounts start from here
        empty_scratch(room),
        *(linux.make_directory(f"{SCRATCH}/{folder}") for folder in _folders_below_scratch()),
        *(
            linux.mount(path, f"{SCRATCH}/{path}", "", linux.MS_BIND | linux.MS_REC)
            for path in _BELOW_SCRATCH
        ),
        linux.change_directory(SCRATCH),
    ]


def empty_scratch(room: Room = NO_FILES) -> linux.SystemCall:
    """Return the call that mounts an empty `SCRATCH`."""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    n_entries = _SCRATCH_FILES + room.n_entries + len(_folders_below_scratch())
    size = f"size={_SCRATCH_BYTES + room.n_bytes},nr_inodes={n_entries}"
    return linux.mount("tmp", SCRATCH, "tmpfs", flags, size)


def _folders_below_scratch() -> list[str]:
    """Return the folders of `_BELOW_SCRATCH` and their parents, parents first."""
    return sorted({folder for path in _BELOW_SCRATCH for folder in (path, *_above(path))})


def _above(path: str) -> Iterable[str]:
    """Yield the folders of a relative path, the innermost first."""
    while path := os.path.dirname(path):
        yield path


def write_files(files: Mapping[str, bytes]) -> None:
    """Write files into the working directory."""
    for name, content in files.items():
        if folder := os.path.dirname(name):
            os.makedirs(folder, exist_ok=True)
        write(name, content)


def write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def common_limits(limits: Limits) -> list[linux.SystemCall]:
    """Return the calls for limits that do not depend on how memory is measured."""
    values = {
        resource.RLIMIT_FSIZE: limits.output_kb << 10,
        resource.RLIMIT_CPU: int(limits.cpu_s) + 2,  # backstop for the exact clock outside
        resource.RLIMIT_NOFILE: MAX_DESCRIPTORS,
        _RLIMIT_SIGPENDING: _PENDING_SIGNALS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    return [linux.limit(kind, value) for kind, value in values.items() if _has_limit(kind)]


@lru_cache
def _has_limit(kind: int) -> bool:
    """Return whether the kernel has a limit: gVisor has neither that of signals nor of messages."""
    try:
        resource.setrlimit(kind, resource.getrlimit(kind))
    except (OSError, ValueError):
        return False
    return True


def sealing(confinement: Confinement, landlock: int | None) -> list[linux.SystemCall]:
    """Return the calls that give up all rights, to be made before the filter is installed.

    Args:
        landlock: descriptor of the Landlock rules; a call closes it.
    """
    calls = [linux.no_new_privileges()]
    if confinement.filter is not None:
        calls.insert(0, linux.drop_capabilities())
    if landlock is not None:
        calls += [linux.landlock_restrict(landlock), linux.close(landlock)]
    return calls
