"""A recipe's configuration: composed without importing verl, and errors that name the key."""

from __future__ import annotations

import difflib
import functools
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coding_model_project.configs import reference, schema
from coding_model_project.errors import ConfigError
from coding_model_project.install import how_to_install
from coding_model_project.launch.device import count_gpus

_GROUPS = ("hardware", "experiment", "sandbox")
"""What a recipe's defaults list lets one choose."""


def config_dir(name: str) -> Path:
    """Where the recipe's `<name>.yaml` lies."""
    spec = find_spec("recipes")  # looked up, not imported: recipes are above this package
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / name / "config"


_BASES = {"repair": "grpo", "harbor": "grpo"}
"""Recipes that build on another's configuration and have its hardware profiles."""

_WITHOUT_VERL = ("baseline",)
"""Recipes whose keys are all ours; an evaluation through a server runs where verl is not installed."""


def search_path(name: str) -> str:
    """The override by which Hydra finds verl's tree, without importing verl (which takes seconds).

    Args:
        name: of the recipe.

    Raises:
        ConfigError: the recipe needs verl, which is not installed.
    """
    ours = "pkg://coding_model_project.configs"
    if name in _WITHOUT_VERL:
        return f"hydra.searchpath=[{ours}]"
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        way = how_to_install(gpu=count_gpus() > 0)
        raise ConfigError(f"verl is not installed, which recipes.{name} trains with: run `{way}`")
    tree = Path(spec.submodule_search_locations[0]) / "trainer" / "config"
    base = f",file://{config_dir(_BASES[name])}" if name in _BASES else ""
    return f"hydra.searchpath=[file://{tree},{ours}{base}]"


def compose_recipe(name: str, overrides: list[str]) -> DictConfig:
    """A recipe's configuration.

    Raises:
        ConfigError: names the key that is wrong and the way out, in one line.
    """
    schema.register()
    if not any(override.startswith("hydra.searchpath=") for override in overrides):
        overrides = [*overrides, search_path(name)]
    try:
        config = _compose(name, overrides)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if isinstance(error, OverrideParseException):
            raise ConfigError(f"{error.override}: {UNREADABLE}") from error
        cause = error.__cause__ or error
        if unknown := _unknown_key(name, overrides):
            raise ConfigError(unknown) from error
        key = getattr(cause, "full_key", None)
        given = next((one for one in overrides if one.lstrip("+").startswith(f"{key}=")), key)
        text = " ".join(str(cause).split("full_key")[0].split("Config search path")[0].split())
        raise ConfigError(f"{given + ': ' if given else ''}{text}") from error
    added = any(re.match(r"\+\+?coding\.", override) for override in overrides)
    if added and (unknown := _unknown_key(name, overrides)):  # Hydra adds it to our tree, too
        raise ConfigError(unknown)
    _refuse_other_types(name, overrides, config)
    _refuse_rival_presets(overrides)
    return config


_ONE_CHOICE = ("actor_rollout_ref.actor.", "coding.reward.kind")
"""Beginnings of keys that make a preset what it is: half of one and half of another is neither."""


def _refuse_rival_presets(overrides: list[str]) -> None:
    """Refuse presets that choose different losses or rewards.

    Raises:
        ConfigError: names the key and both presets.
    """
    chosen = next((one for one in reversed(overrides) if one.startswith("experiment=[")), "")
    names = re.findall(r"\w+", chosen.partition("=")[2])
    presets = {preset.name: preset.keys for preset in reference.presets()}
    set_by: dict[str, tuple[str, Any]] = {}
    for name in names:
        for key, value in presets.get(name, {}).items():
            other, before = set_by.setdefault(key, (name, value))
            if before != value and key.startswith(_ONE_CHOICE):
                raise ConfigError(
                    f"{chosen}: {other} sets {key}={before} and {name} sets {value}: choose one of them, "
                    "and set single keys of the other after it"
                )


def _refuse_other_types(name: str, overrides: list[str], config: DictConfig) -> None:
    """Refuse words for numbers: verl's tree is untyped, so that only its workers would find out.

    Raises:
        ConfigError: names the key, its value and what the default is.
    """
    keys = [override.lstrip("+~").split("=")[0] for override in overrides]
    keys = [key for key in keys if "." in key and not key.startswith(("hydra.", "coding."))]
    if not keys:
        return
    chosen = [one for one in overrides if one.startswith(("hardware=", "hydra.searchpath="))]
    usual = _usual(name, tuple(chosen))
    for key in keys:
        try:
            before, now = OmegaConf.select(usual, key), OmegaConf.select(config, key)
        except OmegaConfBaseException:  # refers to a key that has no value yet
            continue
        if (expected := _expected(before, now)) and key not in _WORDS_TOO:
            raise ConfigError(f"{key}={now}: set it to {expected}, such as the default, {before}")


UNREADABLE = (
    "Hydra cannot read this value; quote text with commas, colons, equals signs or brackets, as in "
    "'key=\"a=b\"' or 'key=[\"a=b\"]'"
)

_OPEN = (
    "coding.sandbox.kwargs.",
    "coding.evaluation.extra_body.",
    "coding.evaluation.chat_template_kwargs.",
    "coding.agent.env.",
)
"""Mappings whose keys are their user's."""

_WORDS_TOO = ("trainer.save_freq", "trainer.test_freq")
"""Numbers that may also be words, which `checks.rules` checks."""


def _expected(usual: Any, now: Any) -> str:
    """The kind of value that a key takes, if it is of another kind now; empty if all is well."""
    if now is None or usual is None:
        return ""
    if isinstance(usual, bool):
        return "" if isinstance(now, bool | int) else "true or false"
    if isinstance(usual, int | float):
        is_number = isinstance(now, int | float) and not isinstance(now, bool)
        return "" if is_number else "a number"
    if OmegaConf.is_dict(usual):
        return "" if OmegaConf.is_dict(now) else "a mapping"
    return ""


@functools.cache
def _usual(name: str, overrides: tuple[str, ...]) -> DictConfig:
    """A recipe's configuration as its profile has it."""
    return _compose(name, list(overrides))


def _compose(name: str, overrides: list[str]) -> DictConfig:
    """Compose, also inside of a program that Hydra runs, whose own state is put back."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with initialize_config_dir(config_dir=str(config_dir(name)), version_base=None):
            return compose(config_name=name, overrides=overrides)
    finally:
        GlobalHydra.instance().hydra = outer


def recorded_config(path: Path, run_dir: str) -> DictConfig:
    """The resolved configuration in another run's folder, for a run in `run_dir`.

    Raises:
        ConfigError: there is none.
    """
    if not path.is_file():
        raise ConfigError(f"--config={path}: no such file; name the config.yaml of a run's folder")
    text = path.read_text()
    # Resolved paths into the old folder, such as the checkpoints', now lead into the new one.
    before = OmegaConf.create(text).coding.run_dir
    after = str(Path(run_dir).expanduser().absolute())
    config = DictConfig(OmegaConf.create(text.replace(before, after)))
    config.coding.force = False
    return config


def _unknown_key(name: str, overrides: list[str]) -> str:
    """A message about the first override of a key that there is not; empty if there is none."""
    own = [override for override in overrides if override.startswith("hydra.searchpath=")]
    known = _keys(_usual(name, tuple(own)))
    for override in overrides:
        key = override.lstrip("+~").split("=")[0]
        ours = key.startswith("coding.")
        if (override.startswith("+") and not ours) or key.startswith(_OPEN):
            continue  # a key that is to be added
        if key not in known and key not in _GROUPS and not key.startswith("hydra"):
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            near = f"did you mean {close[0]}? " if close else ""
            add = "" if ours else f", +{key}=... adds one"
            return f"{override}: no such key; {near}--cfg job shows all keys{add}"
    return ""


def _keys(node: Any, prefix: str = "") -> list[str]:
    if not OmegaConf.is_dict(node):
        return [prefix.rstrip(".")]
    own = [prefix.rstrip(".")] if prefix else []
    return own + [
        key
        for child in node
        for key in _keys(
            None
            if OmegaConf.is_missing(node, child) or OmegaConf.is_interpolation(node, child)
            else node[child],
            f"{prefix}{child}.",
        )
    ]
