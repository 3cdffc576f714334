"""The machine to check a configuration against."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from coding_model_project.launch.checks.machine_checks import counted_cpus
from coding_model_project.runs import accelerators

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One of `nodes` equal hosts; memory in GiB."""

    gpus: int
    gpu_memory_gb: float | None
    """Memory per GPU; None without GPUs."""
    cpus: int
    """CPUs as Ray counts them."""
    memory_gb: float
    """Free memory of this host, or total memory of a described one."""
    nodes: int = 1


def this_machine() -> Machine:
    """Measure this host. Of unequal GPUs, the smallest memory counts."""
    found = accelerators.measure()
    sizes = [gpu.memory_gb for gpu in found if gpu.memory_gb is not None]
    return Machine(
        gpus=accelerators.trainable(found, os.environ.get("CUDA_VISIBLE_DEVICES")),
        gpu_memory_gb=min(sizes, default=None),
        cpus=counted_cpus(),
        memory_gb=free_memory_gb(),
    )


def free_memory_gb() -> float:
    """Return the free memory of this host in GiB, within the limit of the container or job."""
    return min(psutil.virtual_memory().available, _cgroup_free()) / _GIB


def _cgroup_free(root: Path = Path("/")) -> float:
    """Return the bytes left in this process's control group and those above; infinite without a limit.

    A container sees its own group as the root. A Slurm job's group is below the host's root.

    Args:
        root: the root of the file system to read cgroups from.
    """
    groups = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    below = Path(next((line[4:] for line in lines if line.startswith("0::/")), ""))
    return min(_left_in(groups / place) for place in (below, *below.parents))


def _left_in(folder: Path) -> float:
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        cache = (folder / "memory.stat").read_text().split("inactive_file ")[1].split()[0]
    except (OSError, IndexError, ValueError):
        return float("inf")
    return float("inf") if limit == "max" else int(limit) - used + int(cache)
