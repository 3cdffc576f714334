"""A writer of task folders; reading one back gives the same task."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from coding_model_project.contained import below
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.format.task import CONFIG_FILE, Task, load_task
from coding_model_project.harbor.format.task_config import TaskConfig, toml


def write_task(folder: Path, config: TaskConfig, files: Mapping[str, str | bytes]) -> Task:
    """Write a task's folder atomically.

    Args:
        files: contents by path in the folder, such as "instruction.md" and "tests/test.sh", written byte
            for byte; files that end in .sh become executable. `config` becomes task.toml.

    Returns:
        The task, read back from the folder.

    Raises:
        ConfigError: the folder exists.
        UnsafeNameError: a path leads out of it.
        InvalidTask: the result is not a task, for example without tests/test.sh; nothing is written.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; remove it or choose another folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for name, content in {**files, CONFIG_FILE: toml(config)}.items():
            _write(below(partial, name), content)
        load_task(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return load_task(folder)


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o755 if path.suffix == ".sh" else 0o644)
