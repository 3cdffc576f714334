"""Limits that a container, or a scheduler's job, sets on this process (control groups, version 2)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Return the number of CPU cores of this process, within the quotas of its groups; at least 1.

    Args:
        root: the root of the file system to read groups from.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, math.floor(_least(_cpu_quota, root, default=cores))))


def free_memory(root: Path = _ROOT) -> float:
    """Return the bytes left within the memory limits of this process's groups; infinite without a limit.

    Args:
        root: the root of the file system to read groups from.
    """
    return _least(_free_memory, root, default=math.inf)


def oom_kills() -> int:
    """Return the number of processes that the kernel has killed for lack of memory since it started.

    It counts every group of this machine, by versions 1 and 2. It is 0 if the kernel does not count.
    """
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _least(limit: Callable[[Path], float], root: Path, *, default: float) -> float:
    """Return the least limit of this process's groups; the default if none has one."""
    found = []
    for group in _groups(root):
        try:
            found.append(limit(group))
        except (OSError, IndexError, ValueError):  # no such file or limit ("max")
            continue
    return min(found, default=default)


def _groups(root: Path) -> Iterator[Path]:
    """Yield this process's group and those above.

    A container sees its own group as the root. A Slurm job's group is below the host's root.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = Path(next((line[4:] for line in lines if line.startswith("0::/")), ""))
    for below in (own, *own.parents):
        yield root / "sys/fs/cgroup" / below


def _cpu_quota(group: Path) -> float:
    quota, period = (group / "cpu.max").read_text().split()
    return int(quota) / int(period)


def _free_memory(group: Path) -> float:
    limit = int((group / "memory.max").read_text())
    used = int((group / "memory.current").read_text())
    cache = (group / "memory.stat").read_text().split("inactive_file ")[1].split()[0]
    return limit - used + int(cache)
