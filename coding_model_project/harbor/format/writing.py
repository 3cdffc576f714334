"""Task folders on disk, such that reading one back gives what was written."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

import tomli_w

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.format.task import CONFIG_FILE, Task, load_task
from coding_model_project.harbor.format.task_config import Artifact, TaskConfig


def write_task(folder: Path, config: TaskConfig, files: Mapping[str, str | bytes]) -> Task:
    """Write a task's folder, all of it or nothing.

    Args:
        files: contents by path in the folder, such as "instruction.md" and "tests/test.sh", byte for
            byte; those that end in .sh can be executed. task.toml is made of `config`.

    Returns:
        The task as it is read back.

    Raises:
        ConfigError: the folder exists, or a path leaves it.
        InvalidTask: this is no task, say because its tests/test.sh is missing; nothing is left behind.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; remove it or choose another")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for name, content in {**files, CONFIG_FILE: toml(config)}.items():
            _write(partial / _inside(name), content)
        load_task(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return load_task(folder)


def toml(config: TaskConfig) -> str:
    """A configuration as the text of a task.toml: the version, and what is not the default."""
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


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"{name!r} is no path inside a task's folder")
    return path


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o755 if path.suffix == ".sh" else 0o644)
