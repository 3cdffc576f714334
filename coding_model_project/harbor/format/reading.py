"""A parser of task.toml, which returns a `TaskConfig` and warnings."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from coding_model_project.harbor.failures import InvalidTask
from coding_model_project.harbor.format.legacy import DEPRECATED_KEYS
from coding_model_project.harbor.format.task_config import EnvironmentConfig, TaskConfig


def parse_config(text: str) -> tuple[TaskConfig, tuple[str, ...]]:
    """Parse a task.toml.

    Returns:
        The configuration, and warnings about deprecated keys and about unknown keys, which are ignored.

    Raises:
        InvalidTask: the text is not TOML, or Harbor would reject a value; the message names the key.
    """
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidTask(f"not TOML: {error}") from error
    if "version" in given:  # before 1.0
        version = given.pop("version")
        given.setdefault("schema_version", version)
    deprecated: list[str] = []
    try:
        config = _adapter().validate_python(given, context=deprecated)
    except ValidationError as error:
        raise InvalidTask(_message(error)) from error
    warnings = [f"deprecated key: {key}" for key in dict.fromkeys(deprecated)]
    unknown = list(_unknown(given, config, ""))
    if unknown:
        warnings.append(f"ignored unknown keys: {', '.join(unknown)}")
    return config, tuple(warnings)


@cache
def _adapter() -> TypeAdapter[TaskConfig]:
    return TypeAdapter(TaskConfig)


def _message(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


def _unknown(given: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    """Yield the keys of a table and its inner tables that their dataclasses do not have."""
    known = {one.name for one in fields(value)}
    if isinstance(value, EnvironmentConfig):
        known |= DEPRECATED_KEYS
    for key, inner in given.items():
        if key not in known:
            yield where + key
            continue
        parsed = getattr(value, key, None)
        if is_dataclass(parsed) and isinstance(inner, dict):
            yield from _unknown(inner, parsed, f"{where}{key}.")
        elif isinstance(parsed, tuple) and isinstance(inner, list):
            for number, (row, member) in enumerate(zip(inner, parsed, strict=True)):
                if is_dataclass(member) and isinstance(row, dict):
                    yield from _unknown(row, member, f"{where}{key}.{number}.")
