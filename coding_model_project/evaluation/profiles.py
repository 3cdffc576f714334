"""Model profiles: sampling recommended by models' authors, as YAML with `coding.evaluation` keys."""

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
"""Keys that merge entry by entry, so that an option changes a single entry."""


@dataclass
class Profile:
    """Keys of a profile, each with its meaning in `EvaluationConfig`."""

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
    """Return the names of this package's profiles."""
    folder = resources.files(_PACKAGE) / _FOLDER
    return sorted(
        one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml")
    )


def read_profile(name: str) -> Profile:
    """Read a profile.

    Args:
        name: name of a profile of this package, or the path of a YAML file.

    Raises:
        ConfigError: the profile is missing, or has a key or value that `Profile` does not accept.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        if not Path(name).is_file():
            raise ConfigError(f"coding.evaluation.profile={name}: no such file")
        text = Path(name).read_text()
    elif name in profile_names():
        text = (resources.files(_PACKAGE) / _FOLDER / f"{name}.yaml").read_text()
    else:
        raise ConfigError(
            f"coding.evaluation.profile={name}: unknown profile; expected one of "
            f"{', '.join(profile_names())}, or the path of a .yaml file"
        )
    try:
        given = OmegaConf.create(text)
        merged = OmegaConf.merge(OmegaConf.structured(Profile), given)
        found = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"coding.evaluation.profile={name}: {error.full_key}: "
            f"{' '.join(str(error).split('full_key')[0].split())}; known keys are "
            f"{', '.join(one.name for one in dataclasses.fields(Profile))}"
        ) from error
    except (yaml.YAMLError, ValueError, TypeError, AssertionError) as error:
        raise ConfigError(
            f"coding.evaluation.profile={name}: not YAML of keys and values "
            f"({' '.join(str(error).split())})"
        ) from error
    assert isinstance(found, Profile)
    return found


def with_profile(config: EvaluationConfig) -> EvaluationConfig:
    """Return an evaluation's keys, with the profile's values for keys that are not set.

    Raises:
        ConfigError: as `read_profile`; or the profile samples at a temperature while the protocol is
            `greedy`.
    """
    if config.profile is None:
        return config
    profile = read_profile(config.profile)
    changes: dict[str, Any] = {}
    for one in dataclasses.fields(Profile):
        given, advised = getattr(config, one.name), getattr(profile, one.name)
        if one.name in _MERGED:
            changes[one.name] = {**advised, **given}
        elif given in (None, []):
            changes[one.name] = advised
    if config.base_url is None and not config.extra_body:
        changes["extra_body"] = {}  # only requests to a server have these fields
    found = dataclasses.replace(config, **changes)
    if config.protocol == "greedy" and found.temperature and config.temperature is None:
        raise ConfigError(
            f"coding.evaluation.profile={config.profile} samples at temperature={found.temperature:g}, "
            "and coding.evaluation.protocol=greedy does not: set coding.evaluation.protocol=sampled "
            "(--protocol sampled --n 1 draws one answer per problem), or temperature=0 to override the "
            "profile"
        )
    return found
