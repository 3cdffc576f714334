"""GPUs, memory, cores, disk, limits, isolation, and what earlier runs left behind."""

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
from coding_model_project.install import how_to_install
from coding_model_project.isolation.confine import Tier
from coding_model_project.launch.checks.machine_checks import counted_cpus
from coding_model_project.launch.device import default_hardware
from coding_model_project.launch.sizing.machine import free_memory_gb
from coding_model_project.program import program
from coding_model_project.runs import accelerators
from coding_model_project.sandbox.embedded.languages.toolchains import summary
from coding_model_project.sandbox.embedded.tiers import strongest, why_not

MEMORY_GB = {"cpu": 9, "gpu_1x": 48, "gpu_8x": 200, "gpu_multi": 200}
"""GiB that GRPO's hardware profiles need free, their coding.min_memory_gb (a test compares)."""

CPUS = {"gpu_1x": 6, "gpu_8x": 33}
"""CPUs that GRPO reserves for a whole run, by profile (a test compares)."""

OBJECT_STORE_MB = 500
"""Of Ray's object store on a CPU, which lies in /dev/shm."""

OPEN_FILES = 4096
DISK_WARNING_GB, DISK_PROBLEM_GB = 10, 2
STALE_RAY_GB = 1
_GIB = 2**30


def gpus() -> list[Finding]:
    found, profile = accelerators.measure(), default_hardware()
    if not found:
        return [ok("gpus", f"none; hardware={profile} is chosen")]
    names = [_described(gpu) for gpu in found]
    kinds = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    said = f"{kinds}; hardware={profile} is chosen"
    if all(gpu.amd for gpu in found):
        remedy = (
            "requirements/gpu.txt is CUDA's: with ROCm's torch and vLLM, untested, set hardware="
        )
        return [warning("gpus", said, remedy)]
    if profile == "cpu":
        return [warning("gpus", said, "CUDA_VISIBLE_DEVICES hides them: unset it to use them")]
    torch = version("torch")
    if torch is not None and "+cpu" in torch:
        remedy = f"{how_to_install(gpu=True)}, or train with hardware=cpu"
        return [problem("gpus", f"{said}, but torch {torch} cannot use them", remedy)]
    if len(found) > 1 and any(gpu.mig for gpu in found):
        remedy = "a run uses one instance: set CUDA_VISIBLE_DEVICES to its UUID, or turn MIG off"
        return [warning("gpus", said, remedy)]
    return [ok("gpus", said)]


def _described(gpu: accelerators.Gpu) -> str:
    return gpu.name if gpu.memory_gb is None else f"{gpu.name} ({gpu.memory_gb:.0f} GB)"


def memory() -> list[Finding]:
    profile = default_hardware()
    needed, free = MEMORY_GB[profile], free_memory_gb()
    found = f"{free:.1f} GB free; hardware={profile} needs {needed}"
    if free >= needed:
        return [ok("memory", found)]
    remedy = "end other programs or raise the container's limit; lower the batch as a last resort"
    return [problem("memory", found, remedy)]


def shared_memory() -> list[Finding]:
    free = shutil.disk_usage("/dev/shm").free / 2**20
    found = f"{free:.0f} MB free; Ray's object store takes {OBJECT_STORE_MB} MB"
    if free >= OBJECT_STORE_MB:
        return [ok("/dev/shm", found)]
    remedy = "give the container more (docker run --shm-size=1g); Ray uses the disk meanwhile"
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
    return [warning("cores", "1", "training and judging share it: give this machine two or more")]


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
    """What programs may be written in; only Python is needed."""
    try:
        return [ok("languages", summary(strongest(Tier.rlimit, sys.executable)))]
    except SandboxError:
        return []  # which the sandbox's own check says


def disk(folder: Path) -> list[Finding]:
    """The file systems of outputs/ and data/, each once."""
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
    return [warning("open files", f"{found}; Ray wants {OPEN_FILES}", "ulimit -n 65536")]


def ray() -> list[Finding]:
    """What an earlier run left: Ray's processes, or its session folders."""
    raylets = [
        process.info
        for process in psutil.process_iter(["name", "pid", "uids", "status"])
        if process.info["name"] == "raylet" and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    mine = [str(raylet["pid"]) for raylet in raylets if raylet["uids"].real == os.getuid()]
    if mine:
        found = f"a Ray session runs (raylet {', '.join(mine)})"
        return [warning("ray session", found, "if no run of yours is going on: ray stop")]
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray"
    size_gb = _size(folder) / _GIB
    if size_gb >= STALE_RAY_GB and not raylets:  # others share the folder
        found = f"none runs, but old ones take {size_gb:.1f} GB in {folder}"
        return [warning("ray session", found, f"rm -r {folder}")]
    return [ok("ray session", "none is left over")]


def _size(folder: Path) -> int:
    """Bytes that a folder's own files take; what vanishes or cannot be read counts nothing."""
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(_blocks(path) for path in paths)


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
