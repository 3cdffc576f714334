"""Profiles of models: the sampling that their makers advise, as YAML of keys of `coding.evaluation`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import EvaluationConfig

_PACKAGE, _FOLDER = "coding_model_project.evaluation", "model_profiles"
_MERGED = ("chat_template_kwargs", "extra_body")
"""Keys whose entries are taken one by one, so that an option changes one of them."""


@dataclass
class Profile:
    """Keys that a profile may have; each is one of `EvaluationConfig`, and has its meaning."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    stop: list[str] = field(default_factory=list)
    system_prompt: str | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    extra_body: dict[str, Any] = field(default_factory=dict)


def profile_names() -> list[str]:
    """Return the names of the profiles that come with this package."""
    folder = resources.files(_PACKAGE) / _FOLDER
    return sorted(
        one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml")
    )


def read_profile(name: str) -> Profile:
    """Read a profile.

    Args:
        name: of one of ours, or the path of a YAML file.

    Raises:
        ConfigError: there is none, or a key or value of it is not one of `Profile`; names it.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        if not Path(name).is_file():
            raise ConfigError(f"coding.evaluation.profile={name}: no such file")
        text = Path(name).read_text()
    elif name in profile_names():
        text = (resources.files(_PACKAGE) / _FOLDER / f"{name}.yaml").read_text()
    else:
        raise ConfigError(
            f"coding.evaluation.profile={name}: no such profile; choose one of "
            f"{', '.join(profile_names())}, or give the path of a .yaml file"
        )
    try:
        given = OmegaConf.create(text)
        merged = OmegaConf.merge(OmegaConf.structured(Profile), given)
        found = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"coding.evaluation.profile={name}: {error.full_key}: "
            f"{' '.join(str(error).split('full_key')[0].split())}; keys are "
            f"{', '.join(one.name for one in dataclasses.fields(Profile))}"
        ) from error
    except (yaml.YAMLError, ValueError, TypeError, AssertionError) as error:
        raise ConfigError(
            f"coding.evaluation.profile={name}: not YAML of keys and values "
            f"({' '.join(str(error).split())})"
        ) from error
    assert isinstance(found, Profile)
    return found


def with_profile(asked: EvaluationConfig) -> EvaluationConfig:
    """Return the keys of an evaluation with its profile's where they were not given.

    Raises:
        ConfigError: as `read_profile`; or a profile that samples meets the protocol `greedy`, whose
            one answer would not be a greedy one.
    """
    if asked.profile is None:
        return asked
    profile = read_profile(asked.profile)
    changes: dict[str, Any] = {}
    for one in dataclasses.fields(Profile):
        given, advised = getattr(asked, one.name), getattr(profile, one.name)
        if one.name in _MERGED:
            changes[one.name] = {**advised, **given}
        elif given in (None, []):
            changes[one.name] = advised
    if asked.base_url is None and not asked.extra_body:
        changes["extra_body"] = {}  # an engine in this process has no requests
    found = dataclasses.replace(asked, **changes)
    if asked.protocol == "greedy" and found.temperature and asked.temperature is None:
        raise ConfigError(
            f"coding.evaluation.profile={asked.profile} samples at temperature={found.temperature:g}, "
            "and coding.evaluation.protocol=greedy does not: set coding.evaluation.protocol=sampled "
            "(--protocol sampled --n 1 is one answer a problem), or temperature=0 to go against the "
            "profile"
        )
    return found
