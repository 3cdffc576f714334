"""The configuration reference, docs/configuration.md: the page reference.md with the schema's keys."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from importlib.resources import files
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml

from coding_model_project.configs.schema import ROOTS

COMMAND = "python -m coding_model_project config reference --out docs/configuration.md"
"""Command that regenerates the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of the `coding:` subtree."""

    name: str
    """Full name, such as "coding.reward.kind"."""
    type: str
    default: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One file of the `experiment` group."""

    name: str
    meaning: str
    keys: Mapping[str, Any]
    """The values it sets, by full key, as in the file."""


def all_keys() -> tuple[Key, ...]:
    """Return every key of any recipe's `coding:` subtree, in the schema's order."""
    found = {key.name: key for root in ROOTS for key in _keys(root, "coding")}
    return tuple(found.values())


def presets() -> tuple[Preset, ...]:
    """Return the presets of `experiment=NAME`, sorted by name; a file's comment is the meaning."""
    texts = {
        file.name.removesuffix(".yaml"): file.read_text("utf-8")
        for file in files("coding_model_project.configs").joinpath("experiment").iterdir()
        if file.name.endswith(".yaml")
    }
    found = [
        Preset(name=name, meaning=_comment(text), keys=dict(_leaves(yaml.safe_load(text) or {})))
        for name, text in texts.items()
    ]
    return tuple(sorted(found, key=lambda preset: preset.name))


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def render() -> str:
    """Return the whole page in Markdown."""
    rows = [
        f"| `{key.name}` | {key.type} | `{key.default}` | {key.unit} | {key.meaning} |"
        for key in all_keys()
    ]
    experiments = [f"| `{preset.name}` | {preset.meaning} |" for preset in presets()]
    page = files("coding_model_project.configs").joinpath("reference.md").read_text("utf-8")
    return page.format(command=COMMAND, experiments="\n".join(experiments), rows="\n".join(rows))


def _keys(section: type, prefix: str) -> Iterator[Key]:
    hints = get_type_hints(section)
    for entry in fields(section):
        name, kind = f"{prefix}.{entry.name}", hints[entry.name]
        if is_dataclass(kind):
            assert isinstance(kind, type)
            yield from _keys(kind, name)
        else:
            yield Key(
                name=name,
                type=_type(kind),
                default=_default(entry),
                unit=entry.metadata.get("unit", ""),
                meaning=entry.metadata.get("meaning", ""),
            )


def _type(kind: Any) -> str:
    """Format a type for users: an enum as its choices, None as YAML's null."""
    if kind is type(None):
        return "null"
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_type(part) for part in get_args(kind))
    if get_origin(kind) is list:
        return f"list of {_type(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return "mapping"
    if issubclass(kind, Enum):
        return ", ".join(f"`{member.name}`" for member in kind)
    return kind.__name__


def _default(entry: Field[Any]) -> str:
    """Format a default as on the command line."""
    value = entry.default if entry.default_factory is MISSING else entry.default_factory()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _comment(text: str) -> str:
    """Return the comment at the top of a YAML file, without Hydra's `@package` line."""
    head = text.split("\n\n")[0].splitlines()
    lines = [line[1:].strip() for line in head if line.startswith("#")]
    return " ".join(line for line in lines if not line.startswith("@package"))
