"""Limits that a container, or a scheduler's job, sets on this process by control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Return the number of CPU cores of this process, within the quotas of its groups; at least 1.

    Args:
        root: the root of the file system to read groups from.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, math.floor(least(cpu_quota, _groups("cpu", root), default=cores))))


def free_memory(root: Path = _ROOT) -> float:
    """Return the bytes left within the memory limits of this process's groups; infinite without a limit.

    Args:
        root: the root of the file system to read groups from.
    """
    return least(_free_memory, _groups("memory", root), default=math.inf)


def least(limit: Callable[[Path], float], groups: Iterable[Path], *, default: float) -> float:
    """Return the least limit of some groups; the default if none has one."""
    found = []
    for group in groups:
        try:
            found.append(limit(group))
        except (OSError, IndexError, ValueError):  # no such file or limit ("max")
            continue
    return min(found, default=default)


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield this process's groups and those above: of version 2, and of version 1 for a controller.

    A container sees its own group as the root. A Slurm job's group is below the host's root.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    mounted = root / "sys/fs/cgroup"
    tops = {"": mounted, controller: mounted / controller}
    own = {top: Path() for top in tops.values()}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in tops:
                own[tops[name]] = Path(path.lstrip("/"))
    for top, below in own.items():
        for part in (below, *below.parents):
            yield top / part


def cpu_quota(group: Path) -> float:
    """Return the CPUs that a group may use.

    Raises:
        OSError, ValueError: it has no limit.
    """
    if (group / "cpu.max").exists():
        quota, period = (group / "cpu.max").read_text().split()
    else:
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    if int(quota) < 0:
        raise ValueError("version 1's word for no quota")
    return int(quota) / int(period)


def _free_memory(group: Path) -> float:
    names = ("memory.max", "memory.current", "inactive_file ")
    if not (group / names[0]).exists():
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
    limit, used = (int((group / name).read_text()) for name in names[:2])
    cache = (group / "memory.stat").read_text().split(names[2])[1].split()[0]
    return limit - used + int(cache)
