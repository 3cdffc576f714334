"""The text of a task.toml as a `TaskConfig`, with what should be said about it."""

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
        The configuration, and warnings: deprecated keys, and unknown ones, which count for nothing.

    Raises:
        InvalidTask: it is no TOML, or Harbor would refuse a value; names the key.
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
        raise InvalidTask(_said(error)) from error
    warnings = [f"deprecated key: {key}" for key in dict.fromkeys(deprecated)]
    unknown = list(_unknown(given, config, ""))
    if unknown:
        warnings.append(f"unknown keys count for nothing: {', '.join(unknown)}")
    return config, tuple(warnings)


@cache
def _adapter() -> TypeAdapter[TaskConfig]:
    return TypeAdapter(TaskConfig)


def _said(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    return f"{key}: {said}" if key else said


def _unknown(given: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    """The keys of a table that its dataclass does not have, with those of the tables in it."""
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
