"""The machine that a configuration is to run on."""

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
    """Each of `nodes` equal hosts; memory in GiB."""

    gpus: int
    gpu_memory_gb: float | None
    """None where it is not known; only sizes are given then."""
    cpus: int
    """As Ray counts them."""
    memory_gb: float
    """Free on a host that exists, all of one that is described."""
    nodes: int = 1


def this_machine() -> Machine:
    """Look at this host. Of unequal GPUs the smallest counts."""
    found = accelerators.measure()
    sizes = [gpu.memory_gb for gpu in found if gpu.memory_gb is not None]
    return Machine(
        gpus=accelerators.trainable(found, os.environ.get("CUDA_VISIBLE_DEVICES")),
        gpu_memory_gb=min(sizes, default=None),
        cpus=counted_cpus(),
        memory_gb=free_memory_gb(),
    )


def free_memory_gb() -> float:
    """GiB that may be taken here, within the container's limit."""
    return min(psutil.virtual_memory().available, _cgroup_free()) / _GIB


def _cgroup_free() -> float:
    """Bytes that this container may still take; infinite without a limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        cache = (folder / "memory.stat").read_text().split("inactive_file ")[1].split()[0]
    except (OSError, IndexError, ValueError):
        return float("inf")
    return float("inf") if limit == "max" else int(limit) - used + int(cache)
