"""Composition of a recipe's configuration without importing verl; errors name the key."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coding_model_project.configs import reference, schema
from coding_model_project.configs.schema import reason
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import rules
from coding_model_project.launch.verl_keys.effects import addable, nearest
from coding_model_project.launch.verl_keys.table import advice
from coding_model_project.launch.verl_keys.tree import UNREADABLE, composed, nodes
from coding_model_project.launch.verl_keys.tree import config_dir as verl_config_dir
from coding_model_project.redaction import MASK, is_redacted

_GROUPS = ("hardware", "experiment", "sandbox")
"""Config groups that a recipe's defaults list lets users choose from."""


def config_dir(name: str) -> Path:
    """Return the folder of the recipe's `<name>.yaml`."""
    spec = find_spec("recipes")  # looked up, not imported: recipes are above this package
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / name / "config"


_BASES = {"repair": "grpo", "harbor": "grpo", "demo": "pipeline"}
"""Recipes that extend another recipe's configuration and use its hardware profiles."""

_WITHOUT_VERL = ("baseline",)
"""Recipes without verl's keys: evaluating a served model does not need verl installed."""


def search_path(name: str) -> str:
    """Return the override that adds verl's tree to Hydra's search path.

    It does not import verl, which takes seconds.

    Args:
        name: the recipe's name.

    Raises:
        ConfigError: the recipe needs verl, which is not installed.
    """
    ours = "pkg://coding_model_project.configs"
    if name in _WITHOUT_VERL:
        return f"hydra.searchpath=[{ours}]"
    tree = verl_config_dir()
    base = f",file://{config_dir(_BASES[name])}" if name in _BASES else ""
    return f"hydra.searchpath=[file://{tree},{ours}{base}]"


def _with_search_path(name: str, overrides: list[str]) -> list[str]:
    given = any(override.startswith("hydra.searchpath=") for override in overrides)
    return overrides if given else [*overrides, search_path(name)]


def compose_recipe(name: str, overrides: list[str]) -> DictConfig:
    """Compose a recipe's configuration.

    Raises:
        ConfigError: keys are wrong; the message names each and its fix, in a line of its own.
    """
    schema.register()
    overrides = _with_search_path(name, overrides)
    try:
        config = composed(config_dir(name), name, overrides)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if isinstance(error, OverrideParseException):
            raise ConfigError(f"{error.override}: {UNREADABLE}") from error
        cause = error.__cause__ or error
        refused = _unknown_keys(name, overrides)
        if not refused:
            key = getattr(cause, "full_key", None)
            given = next((one for one in overrides if one.lstrip("+").startswith(f"{key}=")), key)
            line = f"{given + ': ' if given else ''}{reason(cause)}"
            if given not in overrides:
                raise ConfigError(line) from error
            refused = {given: line}
        raise ConfigError("\n".join(_faults(name, overrides, refused))) from error
    added = any(re.match(r"\+\+?coding\.", override) for override in overrides)
    if added and (unknown := _unknown_keys(name, overrides)):  # Hydra would add it to `coding:` too
        raise ConfigError("\n".join(_faults(name, overrides, unknown)))
    _refuse_other_types(name, overrides, config)
    _refuse_rival_presets(overrides)
    found = without_effect(name, overrides, config)
    if of_rewards := {text: line for text, line, refused in found if refused}:
        raise ConfigError("\n".join(_faults(name, overrides, of_rewards)))
    return config


_ONE_CHOICE = ("actor_rollout_ref.actor.", "coding.reward.kind")
"""Prefixes of keys that define a preset: presets that set them differently cannot be combined."""


def _refuse_rival_presets(overrides: list[str]) -> None:
    """Refuse presets that choose different losses or rewards.

    Raises:
        ConfigError: two presets conflict; the message names the key and both presets.
    """
    chosen = next((one for one in reversed(overrides) if one.startswith("experiment=[")), "")
    names = re.findall(r"\w+", chosen.partition("=")[2])
    if len(names) < 2:
        return
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
    """Refuse values of the wrong type; verl's tree is untyped, so only its workers would fail.

    Raises:
        ConfigError: values have the wrong type; the message names key, value and default of each.
    """
    if not (own := _of_verl(overrides)):
        return
    usual, wrong = _usual(name, _chosen(overrides)), list[str]()
    for key in own:
        try:
            before, now = OmegaConf.select(usual, key), OmegaConf.select(config, key)
        except OmegaConfBaseException:  # refers to a key that has no value yet
            continue
        if (expected := _expected(before, now)) and key not in _WORDS_TOO:
            wrong.append(f"{key}={now}: set it to {expected}, such as the default, {before}")
    if wrong:
        raise ConfigError("\n".join(wrong))


def _of_verl(overrides: list[str]) -> dict[str, str]:
    """Return the overrides of verl's keys, by key."""
    found = {override.lstrip("+~").split("=")[0]: override for override in overrides}
    own = {key: given for key, given in found.items() if "." in key}
    return {key: given for key, given in own.items() if not key.startswith(("hydra.", "coding."))}


_OPEN = (
    "coding.sandbox.kwargs.",
    "coding.evaluation.extra_body.",
    "coding.evaluation.chat_template_kwargs.",
    "coding.agent.env.",
)
"""Mappings whose keys users choose."""

_WORDS_TOO = ("trainer.save_freq", "trainer.test_freq")
"""Numeric keys that also accept words; `checks.rules` checks them."""


def _expected(usual: Any, now: Any) -> str:
    """Return the expected kind of value if a key's value is of another kind, else an empty string."""
    if now is None or usual is None:
        return ""
    if isinstance(usual, bool):
        return "" if isinstance(now, int) else "true or false"
    if isinstance(usual, int | float):
        return "a number" if isinstance(now, bool) or not isinstance(now, int | float) else ""
    return "a mapping" if OmegaConf.is_dict(usual) and not OmegaConf.is_dict(now) else ""


def _chosen(overrides: list[str]) -> tuple[str, ...]:
    """Return the overrides that choose files, and so which keys there are."""
    return tuple(
        one for one in overrides if one.partition("=")[0] in (*_GROUPS, "hydra.searchpath")
    )


@functools.cache
def _usual(name: str, overrides: tuple[str, ...]) -> DictConfig:
    """Compose a recipe with only these overrides."""
    return composed(config_dir(name), name, list(overrides))


def without_effect(
    name: str, overrides: list[str], config: DictConfig
) -> Iterator[tuple[str, str, bool]]:
    """Yield overrides that verl accepts and does not use; see `rules.without_effect`."""
    own = _of_verl(overrides)
    if own and "actor_rollout_ref" in config:
        chosen = _chosen(_with_search_path(name, overrides))
        yield from rules.without_effect(own.values(), _usual(name, chosen), config)


def recorded_config(path: Path, run_dir: str) -> DictConfig:
    """Load another run's resolved configuration for a run in `run_dir`.

    Raises:
        ConfigError: the file does not exist, refers to something outside it (`${…}`), or has a URL
            without its password.
    """
    if not path.is_file():
        raise ConfigError(f"--config={path}: no such file; give the config.yaml of a run's folder")
    text = path.read_text()
    if "${" in text:
        raise ConfigError(
            f"--config={path}: has an interpolation ({_first(text, '${')}), which no recorded "
            "configuration has; replace it by its value"
        )
    if is_redacted(text):
        raise ConfigError(
            f"--config={path}: has a URL without its password ({_first(text, MASK)}), which a run never "
            "records; start the recipe with that key instead"
        )
    # Redirect resolved paths, such as the checkpoints', from the old folder to the new one.
    before = OmegaConf.create(text).coding.run_dir
    after = str(Path(run_dir).expanduser().absolute())
    config = DictConfig(OmegaConf.create(text.replace(before, after)))
    config.coding.force = False
    for key in ("coding.checkpoints.url", "coding.mirror.url"):  # the recorded run's own
        if OmegaConf.select(config, key) is not None:
            OmegaConf.update(config, key, None)
    return config


def _first(text: str, part: str) -> str:
    """Return the first line of a configuration that contains a part."""
    return next(line.strip() for line in text.splitlines() if part in line)


def _unknown_keys(name: str, overrides: list[str]) -> dict[str, str]:
    """Return a line about each override of an unknown key, and of a known one with `+`."""
    try:
        usual = _usual(name, _chosen(overrides))
    except HydraException:  # a choice does not exist, which Hydra's own error says
        return {}
    known = [key for key, _ in nodes(usual)]
    return {
        override: _unknown(override, usual, known)
        for override in overrides
        if _is_unknown(override, known)
    }


def _faults(name: str, overrides: list[str], refused: dict[str, str]) -> list[str]:
    """Return the lines about refused overrides, and about the values of the others."""
    try:
        config = compose_recipe(name, [one for one in overrides if one not in refused])
    except ConfigError as error:
        return [*refused.values(), str(error)]
    return [*refused.values(), *rules.broken(config)]


def _is_unknown(override: str, known: list[str]) -> bool:
    key = override.lstrip("+~").split("=")[0]
    ours = key.startswith("coding.")
    if override.startswith("+") and not override.startswith("++") and key in known:
        return True
    if (override.startswith("+") and not ours) or key.startswith(_OPEN):
        return False  # the user adds this key on purpose
    return key not in known and key not in _GROUPS and not key.startswith("hydra")


def _unknown(override: str, usual: DictConfig, known: list[str]) -> str:
    """Return a line about an override of an unknown key, with one that has an effect."""
    key, _, value = override.lstrip("+~").partition("=")
    if key in known:
        return f"{override}: the key exists; write it without +"
    if ".megatron." in key:
        return f"{override}: recipes train with FSDP; leave it out"
    if (found := advice(key, value)) is not None:
        line = f"set {found.here}" if found.here else "leave it out"
        return f"{override}: no such key{f' ({found.why})' if found.why else ''}; {line}"
    if not key.startswith("coding.") and addable(key, usual):
        return f"{override}: no such key; +{override} adds it"
    near = nearest(key, known)
    return f"{override}: no such key; {f'did you mean {near}? ' if near else ''}--cfg job shows all keys"
