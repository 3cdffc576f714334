"""The hash of a task's content, as Harbor records it in lock.json."""

from __future__ import annotations

import hashlib
from pathlib import Path

from coding_model_project.harbor.format.ignoring import Ignored
from coding_model_project.harbor.format.task import CONFIG_FILE, Task
from coding_model_project.harbor.step import INSTRUCTION_FILE

_FILES = (CONFIG_FILE, INSTRUCTION_FILE, "README.md", "trajectory.json")
_FOLDERS = ("environment", "tests", "solution", "steps")
_IGNORED = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
"""Patterns to ignore, unless the task has its own .gitignore."""


def task_digest(task: Task) -> str:
    """Return "sha256:" and the hash of all files' names and hashes, sorted by name."""
    digest = hashlib.sha256()
    for path in sorted(_paths(task), key=lambda one: one.relative_to(task.path).as_posix()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(task.path).as_posix()}\0{content}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _paths(task: Task) -> list[Path]:
    ignore = task.path / ".gitignore"
    lines = task.files.text(ignore).splitlines() if ignore.exists() else _IGNORED
    ignored = Ignored(lines)
    found = [task.path / name for name in _FILES]
    for name in _FOLDERS:
        folder = task.path / name
        found += [folder / inner for inner in task.files.selected(folder)]
    return [
        path
        for path in found
        if path.is_file() and not ignored.decide(path.relative_to(task.path).as_posix())
    ]
