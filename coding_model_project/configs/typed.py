"""Conversion of a composed configuration's `coding:` subtree to one typed object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, SCMode
from omegaconf.errors import (
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from coding_model_project.configs.schema import BaselineConfig, CodingConfig, PreferenceConfig
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.settings import Settings
from coding_model_project.harbor import task_grader


def coding_of(config: DictConfig) -> CodingConfig:
    """Return the typed `coding:` subtree, a `BaselineConfig` or `PreferenceConfig` if it has their keys.

    Args:
        config: composed by a recipe, or in plain containers from a run's folder or Ray. Keys that an
            older run lacks get their defaults.

    Raises:
        ConfigError: a key has no value or a wrong one, or an interpolation cannot be resolved.
    """
    given = config.coding
    roots = {"evaluation": BaselineConfig, "dpo": PreferenceConfig}
    root = next((roots[name] for name in roots if name in given), CodingConfig)
    try:
        plain = OmegaConf.to_container(given, resolve=True, enum_to_str=True)
        whole = OmegaConf.merge({"coding": OmegaConf.structured(root)}, {"coding": plain})
        typed = OmegaConf.to_container(whole.coding, structured_config_mode=SCMode.INSTANTIATE)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key}: no value given") from error
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {_refusal(error)}") from error
    return cast(CodingConfig, typed)


def reason(error: BaseException) -> str:
    """Return the reason of an error of OmegaConf or Hydra, without the place that it names."""
    text = " ".join(re.split("full_key|Config search path", str(error))[0].split())
    return "expected a list, such as [VALUE]" if "is not a ListConfig" in text else text


def _refusal(error: OmegaConfBaseException) -> str:
    """Return why the schema refuses a key or value, and what to write."""
    if isinstance(error, ConfigKeyError):
        group, _, name = str(error.full_key).rpartition(".")
        near = get_close_matches(name, map(str, error.parent_node or ()), n=1)
        return f"no such key{f'; did you mean {group}.{near[0]}?' if near else ''}"
    if isinstance(error, ValidationError) and not isinstance(error, InterpolationResolutionError):
        return reason(error)
    return f"{reason(error)}; write \\${{ for ${{ in a text"


class OnUngradable(StrEnum):
    """The end of a sample that could not be judged."""

    drop = "drop"
    """It fails: verl leaves it out of the batch, in its asynchronous modes with all of its group."""
    zero_advantage = "zero_advantage"
    """It stays in the batch with an advantage of 0, and has no part in those of its group."""
    stop = "raise"
    """The run ends."""


def coding_beside(config: DictConfig) -> tuple[CodingConfig, OnUngradable]:
    """Return the typed `coding:` subtree of another program's configuration, where all of it is optional.

    Without `run_dir`, which is then empty, and `problems` there are none; a recipe has defaults.
    `on_ungradable` is a key of such programs only.

    Raises:
        ConfigError: a key is unknown, or a value is wrong.
    """
    given = OmegaConf.select(config, "coding")
    plain = {} if given is None else {name: given._get_node(name) for name in given}
    word = str(plain.pop("on_ungradable", OnUngradable.drop))
    if word not in list(OnUngradable):
        raise ConfigError(f"coding.on_ungradable={word}: expected {', '.join(OnUngradable)}")
    if word == OnUngradable.zero_advantage:
        _check_placeholders(config)
    base: dict[str, Any] = {"run_dir": "", "dataset": None, "problems": []}
    whole = OmegaConf.merge({"coding": base}, {"coding": plain})
    return coding_of(cast(DictConfig, whole)), OnUngradable(word)


def _check_placeholders(config: DictConfig) -> None:
    """Raise ConfigError if anything but the advantages would read the score of a sample without one."""
    keys = "algorithm.filter_groups.enable", "algorithm.use_kl_in_reward", "critic.enable"
    readers = [key for key in keys if OmegaConf.select(config, key)]
    if OmegaConf.select(config, "algorithm.adv_estimator") == "gae":
        readers.append("algorithm.adv_estimator")
    if readers:
        key = readers[0]
        raise ConfigError(
            f"coding.on_ungradable=zero_advantage: {key}={OmegaConf.select(config, key)} would use the "
            "score of a sample that has none: set +coding.on_ungradable=drop"
        )


def evaluation_settings(coding: CodingConfig) -> Settings:
    """Return the settings of an evaluation.

    Raises:
        ConfigError: a value is invalid; the message names the key.
    """
    assert isinstance(coding, BaselineConfig)
    return Settings.of(
        coding.evaluation,
        run_dir=Path(coding.run_dir),
        seed=coding.seed,
        prompt=coding.prompt,
        observation_bytes=coding.repair.observation_bytes,
        sandbox=coding.sandbox,
        force=coding.force,
        tasks=task_grader,
    )


def new_config(coding: Mapping[str, Any], evaluation: Mapping[str, Any]) -> DictConfig:
    """Build a configuration like that of `recipes.baseline`, without Hydra.

    Args:
        coding: values of keys under `coding:`.
        evaluation: values of keys under `coding.evaluation`; None leaves the default.

    Raises:
        ConfigError: the schema rejects a key or value.
    """
    given = {name: value for name, value in evaluation.items() if value is not None}
    try:
        schema = OmegaConf.structured(BaselineConfig)
        return OmegaConf.create(
            {"coding": OmegaConf.merge(schema, dict(coding), {"evaluation": given})}
        )
    except OmegaConfBaseException as error:
        raise ConfigError(f"coding.{error.full_key}: {reason(error)}") from error
