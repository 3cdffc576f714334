"""A writer of task folders; reading one back gives the same task."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import tomli_w

from coding_model_project.contained import below
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.format.task import CONFIG_FILE, Task, load_task
from coding_model_project.harbor.format.task_config import Artifact, TaskConfig


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


def toml(config: TaskConfig) -> str:
    """Return a configuration as the text of a task.toml: the version, and non-default values."""
    return tomli_w.dumps({"schema_version": config.schema_version, **_table(config)})


def _table(value: Any) -> dict[str, Any]:
    members = {one.name: getattr(value, one.name) for one in fields(value)}
    defaults = {one.name: _default(one) for one in fields(value)}
    return {name: _plain(member) for name, member in members.items() if member != defaults[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, Artifact) and value == Artifact(source=value.source):
        return value.source
    if is_dataclass(value):
        return _table(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value


def _default(one: Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o755 if path.suffix == ".sh" else 0o644)
