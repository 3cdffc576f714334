"""Takes from a process all it does not need to run one test, irrevocably."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.sandbox.embedded import linux
from coding_model_project.types import Limits


class Tier(StrEnum):
    """How strongly a test is isolated; the order of definition is the order of strength."""

    rlimit = "rlimit"
    """Resource limits only: neither network nor files are closed. Never chosen silently."""
    seccomp = "seccomp"
    """Landlock and seccomp: nothing writable, little readable, no network, no processes."""
    namespaces = "namespaces"
    """As above, and a root of its own, without network, processes or users of the host."""

    def at_least(self, other: Tier) -> bool:
        order = list(Tier)
        return order.index(self) >= order.index(other)


MEMORY_MARGIN = 48 << 20
"""Bytes of address space a test gets above its limit: thread stacks, allocator arenas."""

READABLE = (
    sys.base_prefix,
    sys.prefix,
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
_SCRATCH = "/tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What a zygote works out once for all its tests."""

    tier: Tier
    base_address_space: int
    """Bytes of address space the zygote itself takes; a test's limit is on top."""
    landlock: int | None
    """Descriptor of the rule set, or None where the kernel has no Landlock or the tier no need."""

    @property
    def namespaces(self) -> int:
        """Flags for the new namespaces of each test."""
        if self.tier is Tier.namespaces:
            return linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC
        return 0


def prepare(tier: Tier) -> Confinement:
    """Called once in a zygote, before any test: enters the tier's namespaces."""
    if tier is Tier.namespaces:
        _enter_namespaces()
    abi = linux.landlock_abi()
    ruleset = None
    if tier is Tier.seccomp:
        if not abi:
            raise OSError("the kernel has no Landlock, which tier seccomp needs to close files")
        ruleset = linux.landlock_ruleset(abi, list(READABLE))
    with open("/proc/self/statm") if tier is not Tier.namespaces else _statm() as file:
        pages = int(file.read().split()[0])
    return Confinement(
        tier=tier,
        base_address_space=pages * resource.getpagesize() + MEMORY_MARGIN,
        landlock=ruleset,
    )


_early_statm = None


def remember_statm() -> None:
    """Keep /proc/self/statm open: a namespace root has no /proc."""
    global _early_statm
    _early_statm = open("/proc/self/statm")


def _statm():  # type: ignore[no-untyped-def]
    assert _early_statm is not None
    _early_statm.seek(0)
    return _early_statm


def _enter_namespaces() -> None:
    """A user namespace with a read-only root of a few bind mounts, no network, no host processes."""
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(
        linux.CLONE_NEWUSER
        | linux.CLONE_NEWNS
        | linux.CLONE_NEWNET
        | linux.CLONE_NEWIPC
        | linux.CLONE_NEWUTS
        | linux.CLONE_NEWCGROUP
    )
    for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    linux.mount("", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("root", _SCRATCH, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=755")
    bound: list[str] = []
    for path in READABLE:
        if not os.path.exists(path) or any(path.startswith(b + "/") or path == b for b in bound):
            continue
        if os.path.islink(path) and path.count("/") == 1:  # /lib -> usr/lib
            os.symlink(os.readlink(path), _SCRATCH + path)
            continue
        _bind(path)
        bound.append(path)
    os.makedirs(_SCRATCH + "/tmp", exist_ok=True)
    os.makedirs(_SCRATCH + "/old")
    os.chdir(_SCRATCH)
    linux.pivot_root(".", "old")
    os.chdir("/")
    linux.umount("/old")
    os.rmdir("/old")
    linux.mount("", "/", "", linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NOSUID)
    linux.sethostname("sandbox")


def _bind(path: str) -> None:
    target = _SCRATCH + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    linux.mount(path, target, "", linux.MS_BIND | linux.MS_REC)
    flags = linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NOSUID
    linux.mount("", target, "", flags | (0 if path.startswith("/dev") else linux.MS_NODEV))


def confine(confinement: Confinement, limits: Limits, descriptors: list[int]) -> None:
    """Confine this process to one test. Descriptors become 0, 1, 2, …; all others are closed.

    Raises:
        OSError: a step failed; the process must not run the program then.
    """
    tier = confinement.tier
    ruleset = len(descriptors)
    wanted = [*descriptors] + ([confinement.landlock] if confinement.landlock is not None else [])
    high = [os.dup2(fd, 200 + i, inheritable=False) for i, fd in enumerate(wanted)]
    for i, fd in enumerate(high):
        os.dup2(fd, i)
    linux.close_range(len(wanted))
    linux.die_with_parent()
    if tier is Tier.namespaces:
        size = "size=8m,nr_inodes=512"
        linux.mount("tmp", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, size)
        os.chdir("/tmp")
    elif tier is Tier.seccomp:
        os.chdir("/")
    _limit(resource.RLIMIT_AS, confinement.base_address_space + (limits.memory_mb << 20))
    _limit(resource.RLIMIT_FSIZE, limits.output_kb << 10)
    _limit(resource.RLIMIT_CPU, int(limits.cpu_s) + 2)  # behind the supervisor's exact clock
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, 64)
    _limit(resource.RLIMIT_MEMLOCK, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    if tier is Tier.rlimit:
        linux.no_new_privileges()
        return
    _limit(resource.RLIMIT_NPROC, 64)
    if tier is Tier.namespaces:
        linux.drop_capabilities()
    linux.no_new_privileges()
    if confinement.landlock is not None:
        linux.landlock_restrict(ruleset)
        os.close(ruleset)
    linux.seccomp_install(linux.seccomp_filter(os.getpid()))


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
