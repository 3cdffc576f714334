"""Confinement of a process: irrevocably drops every right that it does not need to run one test."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from coding_model_project.isolation import linux
from coding_model_project.types import Limits


class Tier(StrEnum):
    """Isolation levels of a test, defined from weakest to strongest."""

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
    path.relative_to(SCRATCH) for path in map(Path, READABLE) if path.is_relative_to(SCRATCH)
]
"""Readable paths below `SCRATCH`, such as a Python environment, which its mount would hide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
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
        """Flags for the new namespaces of each test."""
        if self.tier is Tier.namespaces:
            return linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC
        return 0


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
    pages = int(Path("/proc/self/statm").read_text().split()[0])
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
        filter=linux.Filter.build(granted or {}),
        proc=proc,
    )


def _enter_namespaces(readable: Sequence[str]) -> None:
    """Enter a user namespace with a read-only root of a few bind mounts, and no network."""
    new_namespaces(1000)
    root = mount_point(readable)
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("root", str(root), "tmpfs", flags, "size=1m,mode=755").make()
    bound: list[Path] = []
    for path in map(Path, readable):
        if not path.exists() or any(path.is_relative_to(parent) for parent in bound):
            continue
        target = root / path.relative_to("/")
        if path.is_symlink() and path.parent == Path("/"):  # /lib -> usr/lib
            target.symlink_to(path.readlink())
            continue
        bind(path, target)
        bound.append(path)
    if PROC in readable:  # each test mounts its own there
        for name, target in _STREAMS.items():
            (root / name).symlink_to(target)
    for name in ("tmp", "old"):
        (root / name).mkdir(exist_ok=True)
    os.chdir(root)
    linux.pivot_root(".", "old")
    os.chdir("/")
    linux.unmount("/old")
    Path("/old").rmdir()
    linux.make_read_only("/")
    linux.sethostname("sandbox")


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
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{uid} {group} 1")
    linux.mount("", "/", "", linux.MS_REC | linux.MS_PRIVATE).make()


def mount_point(readable: Sequence[str]) -> Path:
    """Return a directory to build the new root on that hides none of the `readable` paths."""
    for name in ("/mnt", "/media", "/srv", "/opt", "/tmp", "/var/tmp", "/dev/shm"):
        path = Path(name)
        if path.is_dir() and not any(Path(p).resolve().is_relative_to(path) for p in readable):
            return path
    raise OSError("no directory to build a root on")


def bind(path: Path, target: Path) -> None:
    """Mount a host's file or folder, and what is mounted below it, at a new path."""
    if path.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    linux.mount(str(path), str(target), "", linux.MS_BIND | linux.MS_REC).make()


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Space for the files of a process."""

    n_bytes: int = 0
    """Bytes in whole pages, as an in-memory file system allocates them."""
    n_entries: int = 0
    """Number of files and of the folders above them."""

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Room:
        """Return the space for files of these sizes, by their paths."""
        page = resource.getpagesize()
        folders = {str(folder) for path in sizes for folder in Path(path).parents}
        return cls(
            n_bytes=sum(-(-size // page) * page for size in sizes.values()),
            n_entries=len(sizes) + len(folders),
        )


NO_FILES = Room()


@lru_cache(maxsize=64)
def steps(
    confinement: Confinement, limits: Limits, n_descriptors: int, room: Room = NO_FILES
) -> Steps:
    """Return the steps for a process that keeps `n_descriptors`; they close all others."""
    kept = [FIRST_KEPT + i for i in range(n_descriptors)]
    if confinement.landlock is not None:
        kept.append(confinement.landlock)
    enter = [linux.duplicate(descriptor, to=i) for i, descriptor in enumerate(kept)]
    enter += [linux.close_from(len(kept)), linux.die_with_parent()]
    if confinement.tier is Tier.namespaces:
        enter += scratch(room)
    else:
        enter += [linux.change_directory("/")]
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
    flags = linux.MS_NOSUID | linux.MS_NODEV
    n_entries = _SCRATCH_FILES + room.n_entries + len(_folders_below_scratch())
    size = f"size={_SCRATCH_BYTES + room.n_bytes},nr_inodes={n_entries}"
    return [
        linux.change_directory(SCRATCH),  # the next mount covers it; bind mounts start from here
        linux.mount("tmp", SCRATCH, "tmpfs", flags, size),
        *(linux.make_directory(f"{SCRATCH}/{folder}") for folder in _folders_below_scratch()),
        *(
            linux.mount(str(path), f"{SCRATCH}/{path}", "", linux.MS_BIND | linux.MS_REC)
            for path in _BELOW_SCRATCH
        ),
        linux.change_directory(SCRATCH),
    ]


def _folders_below_scratch() -> list[Path]:
    """Return the folders of `_BELOW_SCRATCH` and their parents, parents first."""
    above = {folder for path in _BELOW_SCRATCH for folder in (path, *path.parents)} - {Path()}
    return sorted(above)


def write_files(files: Mapping[str, bytes]) -> None:
    """Write files into the working directory."""
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)


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
    return [linux.limit(kind, value) for kind, value in values.items()]


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
