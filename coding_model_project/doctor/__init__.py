"""Whether a machine can train, and what to do where it cannot.

Answers in about two seconds without importing torch, ray or verl; only `deep` starts those.

    findings.py   what a check answers
    software.py   versions, git, W&B, the hub
    machine.py    GPUs, memory, disk, limits, isolation, leftovers
    deep.py       real imports, each in a process of its own
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from coding_model_project.doctor import deep, machine, software
from coding_model_project.doctor.findings import Finding, Status, warning

__all__ = ["Finding", "Status", "diagnose"]

Check = Callable[[], list[Finding]]


def diagnose(folder: Path, *, imports: bool = False) -> list[Finding]:
    """Check this machine for training in `folder`, where outputs/ and data/ will lie.

    Args:
        imports: also import what training imports; takes a minute.
    """
    checks: dict[str, Check] = {
        "python": software.python,
        "gpus": machine.gpus,
        "packages": software.packages,
        "cpu plugin": software.cpu_plugin,
        "memory": machine.memory,
        "/dev/shm": machine.shared_memory,
        "cores": machine.cores,
        "sandbox": machine.sandbox,
        "languages": machine.languages,
        "disk": lambda: machine.disk(folder),
        "open files": machine.open_files,
        "ray session": machine.ray,
        "git": software.git,
        "wandb": software.wandb,
        "hub": software.hub,
    }
    with ThreadPoolExecutor(len(checks)) as pool:  # the sandbox and the hub take their time
        found = pool.map(attempt, checks, checks.values())
        findings = [finding for answer in found for finding in answer]
    return [*findings, *(deep.imports() if imports else ())]


def attempt(name: str, check: Check) -> list[Finding]:
    """A check's findings. What this machine does not tell, such as a missing /proc, is a warning."""
    try:
        return check()
    except (OSError, psutil.Error) as error:
        return [warning(name, f"not known: {error}")]
