"""The NVIDIA GPUs of this host, found without importing torch.

A container may hide any of the sources that list GPUs, so they are tried until one lists some:

    /proc/driver/nvidia/gpus    the NVIDIA driver's own list; names, no memory
    nvidia-smi                  names, memory, MIG instances; takes a second
    /dev/nvidia0, nvidia1, …    device files without names; some containers have only these

`CUDA_VISIBLE_DEVICES` hides GPUs but never adds one: schedulers also set it on hosts without GPUs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
NAMELESS = "NVIDIA GPU"
_SMI_FOLDERS = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib")
"""Folders of nvidia-smi in container runtimes and WSL 2, which do not add them to PATH."""
_SMI_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or one MIG instance of a GPU."""

    name: str
    memory_gb: float | None = None
    """Memory in GiB; None if unknown."""
    mig: bool = False
    """True for a MIG instance. CUDA gives a process only one of them, and NCCL supports none."""


def find(root: Path = ROOT) -> list[Gpu]:
    """Return this host's GPUs from the first source that lists one; the cheapest sources come first.

    Args:
        root: the root of the file system to search.
    """
    return _first(root, (_driver, _device_files, _smi))


def measure(root: Path = ROOT) -> list[Gpu]:
    """Return this host's GPUs, with their memory if it is available; may take seconds."""
    return _first(root, (_smi, _driver, _device_files))


def trainable(gpus: Sequence[Gpu], visible: str | None) -> int:
    """Count the GPUs that a training here can use.

    Args:
        visible: CUDA_VISIBLE_DEVICES, or None if it is not set. As in CUDA, the first invalid entry ends
            the list.
    """
    most = 1 if any(gpu.mig for gpu in gpus) else len(gpus)
    if visible is None:
        return most
    named = 0
    for entry in visible.split(","):
        index = entry.strip()
        is_uuid = index.startswith(("GPU-", "MIG-"))
        if not is_uuid and not (index.isdecimal() and int(index) < len(gpus)):
            break
        named += 1
    return min(most, named)


def _first(root: Path, places: Sequence[Callable[[Path], list[Gpu]]]) -> list[Gpu]:
    for place in places:
        with contextlib.suppress(OSError):  # unreadable: try the next source
            if found := place(root):
                return found
    return []


def _driver(root: Path) -> list[Gpu]:
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    # Each instance has a folder, although a container may lack its access file.
    instances = list((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi[0-9]*"))
    if names and instances:
        return [Gpu(name=f"{names[0]}, a MIG instance", mig=True) for _ in instances]
    return [Gpu(name=name) for name in names]


def _device_files(root: Path) -> list[Gpu]:
    return [Gpu(name=NAMELESS) for _ in (root / "dev").glob("nvidia[0-9]*")]


def _smi(root: Path) -> list[Gpu]:
    folders = [*os.environ.get("PATH", "").split(":"), *_SMI_FOLDERS]
    path = ":".join(str(root / folder.lstrip("/")) for folder in folders if folder)
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return []
    instances = re.findall(r"^\s+MIG (\S+)", _output(program, "-L"), re.MULTILINE)
    if instances:
        sizes = [re.search(r"\.(\d+)gb", kind) for kind in instances]  # as in 3g.20gb
        return [
            Gpu(name=f"MIG {kind}", memory_gb=float(size[1]) if size else None, mig=True)
            for kind, size in zip(instances, sizes, strict=True)
        ]
    table = _output(program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    rows = [row.rpartition(",") for row in table.splitlines() if "," in row]
    # A GPU that uses the host's memory has "[N/A]" of its own.
    sizes = [int(mib) / 1024 if mib.strip().isdecimal() else None for *_, mib in rows]
    return [Gpu(name=row[0].strip(), memory_gb=size) for row, size in zip(rows, sizes, strict=True)]


def _output(program: str, *arguments: str) -> str:
    """Return nvidia-smi's output; empty if it fails, as without a driver."""
    try:
        result = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SMI_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""
