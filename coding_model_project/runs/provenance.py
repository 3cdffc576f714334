"""A run's provenance: command, machine, versions, commit and uncommitted changes."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from coding_model_project.contained import below
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.redaction import redacted
from coding_model_project.runs import accelerators

_UNTRACKED_BYTES = 1_000_000
"""Limit of the copied untracked files together; files beyond it are only listed in status.txt."""

_SOURCES = frozenset({".py", ".yaml", ".yml", ".toml", ".sh", ".md", ".html", ".js", ".css"})
"""Suffixes of the untracked files to copy: source text, but not a stray .env or key."""

SHIPPED, SHIPPED_STATE, SHIPPED_PATCH = ".job_source", "state.json", "uncommitted.patch"
"""Names in a job's package that replace `.git` (`launch.jobs.source`)."""
_SHIPPED = Path(__file__).parents[2] / SHIPPED

_SEED_KEYS = (
    "coding.seed",
    "data.seed",
    "trainer.seed",
    "actor_rollout_ref.rollout.seed",
    "actor_rollout_ref.actor.data_loader_seed",
)


def collect(recipe: str, command: list[str], seeds: dict[str, int]) -> dict[str, Any]:
    """Return the content of `run.json`."""
    return {
        "recipe": recipe,
        "command": redacted(command),
        "cwd": str(Path.cwd()),
        "created": time.time(),
        "host": socket.gethostname(),
        "hardware": hardware(),
        "python": platform.python_version(),
        "packages": packages(),
        "git": git_state(),
        "seeds": seeds,
        "grader_version": GRADER_VERSION,
    }


def seeds(config: DictConfig) -> dict[str, int]:
    """Return every seed of a configuration by its key."""
    found = {key: OmegaConf.select(config, key) for key in _SEED_KEYS}
    return {key: value for key, value in found.items() if isinstance(value, int)}


def hardware() -> dict[str, Any]:
    """Return processor, cores, memory and accelerators of this host."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(named, platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": [gpu.name for gpu in accelerators.find()],
    }


@functools.cache
def packages() -> dict[str, str]:
    """Return the version of every installed distribution; reading them all takes half a second."""
    found = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return dict(sorted((name, version) for name, version in found.items() if name))


def git_state() -> dict[str, Any] | None:
    """Return commit and branch of this package's working tree; None outside one."""
    if _SHIPPED.is_dir():
        return json.loads((_SHIPPED / SHIPPED_STATE).read_text())
    commit = git("rev-parse", "HEAD")
    if not commit:
        return None
    return {
        "commit": commit.strip(),
        "branch": git("rev-parse", "--abbrev-ref", "HEAD").strip(),
        "dirty": bool(git("status", "--porcelain").strip()),
    }


def differences(before: Mapping[str, Any]) -> list[str]:
    """Return what now differs from a recorded run's provenance: packages, commit, grader version."""
    now = packages()
    changed = [
        f"{name} {before['packages'].get(name, 'absent')} → {now.get(name, 'absent')}"
        for name in ("torch", "verl", "vllm", "transformers", "ray")
        if before["packages"].get(name) != now.get(name)
    ]
    commit, commit_now = (before["git"] or {}).get("commit"), (git_state() or {}).get("commit")
    if commit != commit_now:
        changed.append(f"commit {str(commit)[:12]} → {str(commit_now)[:12]}")
    if before["grader_version"] != GRADER_VERSION:
        changed.append(f"grader version {before['grader_version']} → {GRADER_VERSION}")
    return changed


def write_patches(folder: Path) -> None:
    """Write status.txt, staged.diff, unstaged.diff and the untracked files within a size limit.

    In a job, write the one patch that was shipped with it.
    """
    if _SHIPPED.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(_SHIPPED / SHIPPED_PATCH, folder)
        return
    if not git("rev-parse", "HEAD"):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in {
        "status.txt": ("status",),
        "staged.diff": ("diff", "--cached"),
        "unstaged.diff": ("diff",),
    }.items():
        (folder / name).write_text(git(*arguments))
    root = Path(git("rev-parse", "--show-toplevel").strip())
    left = _UNTRACKED_BYTES
    for name in git("ls-files", "--others", "--exclude-standard", "-z", cwd=root).split("\0"):
        source = root / name
        if source.suffix not in _SOURCES or source.is_symlink() or not source.is_file():
            continue
        if source.stat().st_size <= left:
            left -= source.stat().st_size
            target = below(folder / "untracked", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


def command_line() -> list[str]:
    """Return the command that started this process, as a user would type it."""
    main = sys.modules["__main__"]
    module = getattr(getattr(main, "__spec__", None), "name", None)
    start = ["-m", module.removesuffix(".__main__")] if module else [sys.argv[0]]
    return ["python", *start, *sys.argv[1:]]


def git(*arguments: str, cwd: Path | None = None) -> str:
    """Return a git command's output; empty without git or a repository."""
    here = cwd or Path(__file__).parent
    try:
        result = subprocess.run(
            ["git", *arguments],
            cwd=here,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        return ""
    return result.stdout if result.returncode == 0 else ""
