"""Checks that a machine can train, with remedies.

Takes about two seconds and does not import torch, ray or verl, except in `software.imports`.

    findings.py   results of checks
    software.py   versions, git, W&B, the Hub; real imports, each in its own process
    machine.py    GPUs, memory, disk, limits, isolation, leftovers
    profile.py    a hardware profile against a described machine
    verl_command.py  the keys of a command of main_ppo; shell_script.py reads its words
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from coding_model_project.doctor import machine, software
from coding_model_project.doctor.findings import Finding, Status, warning

__all__ = ["Finding", "Status", "diagnose"]

Check = Callable[[], list[Finding]]


def diagnose(folder: Path, *, imports: bool = False) -> list[Finding]:
    """Check this machine for training in `folder`, which will hold outputs/ and data/.

    Args:
        imports: also import the packages that training imports (takes a minute).
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
    with ThreadPoolExecutor(len(checks)) as pool:  # the checks of the sandbox and the Hub are slow
        found = pool.map(attempt, checks, checks.values())
        findings = [finding for answer in found for finding in answer]
    return [*findings, *(software.imports() if imports else ())]


def attempt(name: str, check: Check) -> list[Finding]:
    """Return a check's findings, or a warning if the machine lacks the information (such as /proc)."""
    try:
        return check()
    except (OSError, psutil.Error) as error:
        return [warning(name, f"unknown: {error}")]
