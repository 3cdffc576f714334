"""verl's composed configuration, and what Hydra and verl's dataclasses accept on top of it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from coding_model_project.configs.schema import reason
from coding_model_project.errors import ConfigError
from coding_model_project.extras import how_to_install
from coding_model_project.launch.device import count_gpus

UNREADABLE = (
    "Hydra cannot read this value; quote text with commas, colons, equals signs or brackets, as in "
    "'key=\"a=b\"' or 'key=[\"a=b\"]'"
)

_DEFAULT = "ppo_trainer"


def version() -> str:
    return metadata.version("verl")


def config_dir() -> Path:
    """Return the folder of verl's configuration, without importing verl.

    Raises:
        ConfigError: verl is not installed.
    """
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        way = how_to_install(gpu=count_gpus() > 0)
        raise ConfigError(f"verl is not installed, which trains and has these keys; run `{way}`")
    return Path(spec.submodule_search_locations[0]) / "trainer" / "config"


def is_group(key: str) -> bool:
    """Return whether a key chooses a file of a config group, as `model_engine=megatron` does."""
    group = key.partition("@")[0]
    return "." not in group and (config_dir() / group).is_dir()


def compose_verl(config_name: str, groups: Sequence[str]) -> DictConfig:
    """Compose main_ppo's configuration with choices of config groups.

    Args:
        config_name: a file of verl's folder; for another one, ppo_trainer is composed.

    Raises:
        HydraException: a choice does not exist.
    """
    name = config_name.removesuffix(".yaml")
    known = (config_dir() / f"{name}.yaml").is_file()
    return _composed(name if known else _DEFAULT, tuple(groups)).copy()


@functools.cache
def _composed(name: str, groups: tuple[str, ...]) -> DictConfig:
    return composed(config_dir(), name, list(groups))


def composed(folder: Path, name: str, overrides: list[str]) -> DictConfig:
    """Compose a configuration of a folder; also works inside a program that Hydra runs."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with initialize_config_dir(config_dir=str(folder), version_base=None):
            return compose(config_name=name, overrides=overrides)
    finally:
        GlobalHydra.instance().hydra = outer


def parsed(text: str) -> Override | None:
    """Parse an override as Hydra does; None if Hydra cannot read it."""
    try:
        return OverridesParser.create().parse_override(text)
    except (OverrideParseException, HydraException):
        return None


def select(config: DictConfig, key: str) -> Any:
    """Return a key's value; None if there is none, or if it refers to a value that is missing."""
    try:
        return OmegaConf.select(config, key, throw_on_missing=False)
    except OmegaConfBaseException:
        return None


def apply(config: DictConfig, override: Override) -> str:
    """Change a configuration as Hydra does.

    Returns:
        Why Hydra refuses the override; empty if it accepts it.
    """
    if override.is_sweep_override():
        return f"a sweep; {UNREADABLE.partition('; ')[2]}"
    key, value = override.key_or_group, override.value()
    try:
        there = OmegaConf.select(config, key, throw_on_missing=False)
        if override.is_delete():
            return "" if there is not None else "no such key"
        if override.is_add() and there is not None and not isinstance(value, dict | list):
            return "the key exists already, which refuses +"
        adds = override.is_add() or override.is_force_add()
        OmegaConf.update(config, key, value, merge=True, force_add=adds)
    except (ConfigAttributeError, ConfigKeyError):
        return "no such key"
    except OmegaConfBaseException as error:
        return reason(error)
    return ""


def nodes(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a configuration with their nodes, sections before their keys."""
    for name in config:
        child = config._get_node(name)
        yield f"{prefix}{name}", child
        if OmegaConf.is_dict(child) and len(child):
            yield from nodes(child, f"{prefix}{name}.")


def leaves(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys that hold values, with their nodes."""
    return (
        (key, node) for key, node in nodes(config) if not (OmegaConf.is_dict(node) and len(node))
    )


def _deepest(config: DictConfig, key: str) -> tuple[Any, str]:
    """Return the deepest node on the way to a key, and the part that it lacks; "" if the key exists."""
    node: Any = config
    for part in key.split("."):
        if not OmegaConf.is_dict(node) or part not in node.keys():  # noqa: SIM118 - `in` misses ???
            return node, part
        node = node._get_node(part)
    return node, ""


def has(config: DictConfig, key: str) -> bool:
    """Return whether a configuration has a key, whatever its value."""
    return not _deepest(config, key)[1]


def unknown_field(config: DictConfig, key: str) -> bool:
    """Return whether one of verl's dataclasses refuses a key that its tree lacks.

    A node with `_target_` becomes that class, and other keys than its fields are a TypeError.
    """
    node, part = _deepest(config, key)
    if not part or not OmegaConf.is_dict(node):
        return False
    target = str(node.get("_target_") or "").rpartition(".")[2]
    return bool(target) and part not in _fields(target)


def is_open(config: DictConfig, key: str) -> bool:
    """Return whether the tree has an empty mapping above a key, which takes any key."""
    while key := key.rpartition(".")[0]:
        node = select(config, key)
        if OmegaConf.is_dict(node):
            return len(node) == 0
    return False


def _fields(name: str) -> frozenset[str]:
    """Return the fields of one of verl's dataclasses, read from its source."""
    classes = _classes()
    if name not in classes:
        return frozenset()
    bases, own = classes[name]
    return own.union(*(_fields(base) for base in bases))


@functools.cache
def _classes() -> dict[str, tuple[tuple[str, ...], frozenset[str]]]:
    """Return verl's configuration classes by name, with their bases and annotated fields."""
    root = config_dir().parents[1]
    found: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}
    for folder in ("workers/config", "trainer/config", "utils/profiler"):
        for file in sorted((root / folder).glob("*.py")):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                    own = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
                    names = frozenset(one.id for one in own if isinstance(one, ast.Name))
                    found.setdefault(node.name, (bases, names))
    return found
