"""Checks that a machine can train, with remedies.

Takes about two seconds and does not import torch, ray or verl, except in `machine.imports`.

    machine.py    versions, GPUs, memory, disk, limits, isolation, leftovers; real imports
    verl_command.py  the keys of a command of main_ppo; shell_script.py reads its words
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Status(StrEnum):
    """Effect of a finding on training."""

    ok = "ok"
    warning = "warning"
    """Training works, but slower or with something missing."""
    problem = "problem"
    """Training will fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    name: str
    status: Status
    finding: str
    """The observation, in one line."""
    remedy: str = ""
    """The action to take, in one line; empty without one."""


def ok(name: str, finding: str) -> Finding:
    return Finding(name=name, status=Status.ok, finding=finding)


def warning(name: str, finding: str, remedy: str = "") -> Finding:
    return Finding(name=name, status=Status.warning, finding=finding, remedy=remedy)


def problem(name: str, finding: str, remedy: str) -> Finding:
    return Finding(name=name, status=Status.problem, finding=finding, remedy=remedy)


def judged(
    name: str, fine: bool, finding: str, remedy: str, otherwise: Status = Status.warning
) -> Finding:
    """Return `ok` if it is fine, else a finding of another status with the remedy."""
    status, way = (Status.ok, "") if fine else (otherwise, remedy)
    return Finding(name=name, status=status, finding=finding, remedy=way)


Check = Callable[[], list[Finding] | Finding]


def diagnose(folder: Path, *, imports: bool = False) -> list[Finding]:
    """Check this machine for training in `folder`, which will hold outputs/ and data/.

    Args:
        imports: also import the packages that training imports (takes a minute).
    """
    from coding_model_project.doctor import machine

    checks: dict[str, Check] = {
        "python": machine.python,
        "gpus": machine.gpus,
        "packages": machine.packages,
        "cpu plugin": machine.cpu_plugin,
        "memory": machine.memory,
        "/dev/shm": machine.shared_memory,
        "cores": machine.cores,
        "sandbox": machine.sandbox,
        "disk": lambda: machine.disk(folder),
        "open files": machine.open_files,
        "ray session": machine.ray,
        "git": machine.git,
    }
    with ThreadPoolExecutor(len(checks)) as pool:  # the check of the sandbox is slow
        found = pool.map(attempt, checks, checks.values())
        findings = [finding for answer in found for finding in answer]
    return [*findings, *(machine.imports() if imports else ())]


def attempt(name: str, check: Check) -> list[Finding]:
    """Return a check's findings, or a warning if the machine lacks the information (such as /proc)."""
    import psutil

    try:
        found = check()
    except (OSError, psutil.Error) as error:
        return [warning(name, f"unknown: {error}")]
    return [found] if isinstance(found, Finding) else found
