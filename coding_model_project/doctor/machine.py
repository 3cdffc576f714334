"""Checks of GPUs, memory, cores, disk, limits, isolation, and leftovers of earlier runs."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from coding_model_project.doctor.findings import Finding, Status, ok, problem, warning
from coding_model_project.doctor.software import version
from coding_model_project.errors import SandboxError
from coding_model_project.extras import how_to_install, program
from coding_model_project.isolation.confine import Tier
from coding_model_project.launch.checks.machine_checks import counted_cpus
from coding_model_project.launch.device import default_hardware
from coding_model_project.launch.sizing import free_memory_gb
from coding_model_project.runs import accelerators
from coding_model_project.sandbox.embedded.languages.toolchains import summary
from coding_model_project.sandbox.embedded.tiers import strongest, why_not

MEMORY_GB = {"cpu": 6, "gpu_1x": 48, "gpu_8x": 200, "gpu_multi": 200}
"""Free GiB that GRPO needs with each hardware profile and its model (a test compares)."""

CPUS = {"gpu_1x": 6, "gpu_8x": 33}
"""CPUs that GRPO reserves for a run, by profile (a test compares)."""

OBJECT_STORE_MB = 500
"""Size of Ray's object store on a CPU, in /dev/shm."""

OPEN_FILES = 4096
DISK_WARNING_GB, DISK_PROBLEM_GB = 10, 2
STALE_RAY_GB = 1
_GIB = 2**30


def gpus() -> list[Finding]:
    found, profile = accelerators.measure(), default_hardware()
    if not found:
        return [ok("gpus", f"none; hardware={profile} is the default")]
    names = [_described(gpu) for gpu in found]
    kinds = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    description = f"{kinds}; hardware={profile} is the default"
    if all(gpu.amd for gpu in found):
        remedy = (
            "requirements/gpu.txt is for CUDA; with ROCm's torch and vLLM (untested), set hardware="
        )
        return [warning("gpus", description, remedy)]
    if profile == "cpu":
        return [
            warning("gpus", description, "CUDA_VISIBLE_DEVICES hides them; unset it to use them")
        ]
    torch = version("torch")
    if torch is not None and "+cpu" in torch:
        remedy = f"{how_to_install(gpu=True)}, or train with hardware=cpu"
        return [problem("gpus", f"{description}, but torch {torch} cannot use them", remedy)]
    if len(found) > 1 and any(gpu.mig for gpu in found):
        remedy = "a run uses one MIG instance; set CUDA_VISIBLE_DEVICES to its UUID, or disable MIG"
        return [warning("gpus", description, remedy)]
    return [ok("gpus", description)]


def _described(gpu: accelerators.Gpu) -> str:
    return gpu.name if gpu.memory_gb is None else f"{gpu.name} ({gpu.memory_gb:.0f} GB)"


def memory() -> list[Finding]:
    profile = default_hardware()
    needed, free = MEMORY_GB[profile], free_memory_gb()
    found = f"{free:.1f} GB free; hardware={profile} needs {needed}"
    if free >= needed:
        return [ok("memory", found)]
    remedy = (
        "end other programs or raise the container's limit; as a last resort, lower the batch size"
    )
    return [problem("memory", found, remedy)]


def shared_memory() -> list[Finding]:
    free = shutil.disk_usage("/dev/shm").free / 2**20
    found = f"{free:.0f} MB free; Ray's object store needs {OBJECT_STORE_MB} MB"
    if free >= OBJECT_STORE_MB:
        return [ok("/dev/shm", found)]
    remedy = "give the container more (docker run --shm-size=1g); until then Ray uses the disk"
    return [warning("/dev/shm", found, remedy)]


def cores() -> list[Finding]:
    profile, cores = default_hardware(), len(os.sched_getaffinity(0))
    counted = counted_cpus()
    if profile in CPUS and counted < CPUS[profile]:
        found = f"{cores}; Ray counts {counted}, and hardware={profile} reserves {CPUS[profile]}"
        remedy = f"{program()} doctor --profile {profile} names the keys to set"
        return [problem("cores", found, remedy)]
    if cores >= 2:
        return [ok("cores", str(cores))]
    return [warning("cores", "1", "training and judging share it; use a machine with two or more")]


def sandbox() -> list[Finding]:
    try:
        tier = strongest(Tier.rlimit, sys.executable)
    except SandboxError as error:
        return [problem("sandbox", str(error), f"{program()} sandbox check")]
    if tier.at_least(Tier.seccomp):
        return [ok("sandbox", f"programs are isolated by {tier}")]
    remedy = "allow user namespaces, or use a kernel ≥ 5.13 with Landlock"
    missing = why_not(Tier.seccomp, sys.executable)
    return [problem("sandbox", f"resource limits only; for seccomp: {missing}", remedy)]


def languages() -> list[Finding]:
    """Report the languages of programs; only Python is required."""
    try:
        return [ok("languages", summary(strongest(Tier.rlimit, sys.executable)))]
    except SandboxError:
        return []  # the sandbox check reports it


def disk(folder: Path) -> list[Finding]:
    """Check the file systems of outputs/ and data/."""
    places: dict[int, list[str]] = {}
    for name in ("outputs", "data"):
        places.setdefault(_existing(folder / name).stat().st_dev, []).append(name)
    return [_free_disk(folder, names) for names in places.values()]


def _free_disk(folder: Path, names: Sequence[str]) -> Finding:
    free = shutil.disk_usage(_existing(folder / names[0])).free / _GIB
    found = f"{free:.0f} GB free for {' and '.join(f'{name}/' for name in names)}"
    if free >= DISK_WARNING_GB:
        return ok("disk", found)
    remedy = "delete old runs, or set coding.run_dir and coding.data_dir to another disk"
    status = Status.problem if free < DISK_PROBLEM_GB else Status.warning
    return Finding(name="disk", status=status, finding=found, remedy=remedy)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def open_files() -> list[Finding]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    found = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    if limit == resource.RLIM_INFINITY or limit >= OPEN_FILES:
        return [ok("open files", found)]
    return [warning("open files", f"{found}; Ray recommends {OPEN_FILES}", "ulimit -n 65536")]


def ray() -> list[Finding]:
    """Check for leftovers of earlier runs: Ray's processes and session folders."""
    raylets = [
        process.info
        for process in psutil.process_iter(["name", "pid", "uids", "status"])
        if process.info["name"] == "raylet" and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    mine = [str(raylet["pid"]) for raylet in raylets if raylet["uids"].real == os.getuid()]
    if mine:
        found = f"a Ray session is running (raylet {', '.join(mine)})"
        return [warning("ray session", found, "if none of your runs is active: ray stop")]
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray"
    size_gb = _size(folder) / _GIB
    if size_gb >= STALE_RAY_GB and not raylets:  # others share the folder
        found = f"none is running, but old ones use {size_gb:.1f} GB in {folder}"
        return [warning("ray session", found, f"rm -r {folder}")]
    return [ok("ray session", "no leftovers")]


def _size(folder: Path) -> int:
    """Return the disk usage of a folder in bytes, ignoring files that vanish or cannot be read."""
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(_blocks(path) for path in paths)


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
