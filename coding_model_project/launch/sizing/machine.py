"""The machine to check a configuration against."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from coding_model_project import control_groups
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
    return min(psutil.virtual_memory().available, control_groups.free_memory()) / _GIB
