"""`coding.evaluation`, checked and with its model profile, and the back end that it selects.

A model profile is sampling recommended by a model's authors: YAML with keys of `coding.evaluation`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coding_model_project.config_key import too_small
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import OPTIONAL, Backend
from coding_model_project.evaluation.evaluation_config import EvaluationConfig, EvaluationMode
from coding_model_project.evaluation.plan import EvalProtocol, Shard, Window, day, protocol_of
from coding_model_project.grading.base import TaskGraders
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.sandbox.sandbox_config import SandboxConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A checked evaluation."""

    config: EvaluationConfig
    """With the values of its profile."""
    run_dir: Path
    seed: int
    protocol: EvalProtocol
    shard: Shard
    sandbox: SandboxConfig
    force: bool
    """Resume although settings have changed."""
    tasks: TaskGraders | None = None
    """See `grading.kinds.Parts`."""

    @classmethod
    def of(
        cls,
        config: EvaluationConfig,
        *,
        run_dir: Path,
        seed: int,
        prompt: PromptStyle,
        sandbox: SandboxConfig,
        force: bool,
        observation_bytes: int = 600,
        tasks: TaskGraders | None = None,
    ) -> Settings:
        """Create settings from a configuration.

        Args:
            observation_bytes: maximum bytes of a failing test shown to the model for a repair.
            tasks: see `grading.kinds.Parts`.

        Raises:
            ConfigError: a key has an invalid value; names it.
        """
        config = with_profile(config)
        for fault in too_small(config):
            raise ConfigError(f"coding.evaluation.{fault}")
        if config.base_url and config.mode is not EvaluationMode.simple:
            raise ConfigError("coding.evaluation.base_url: only available with mode=simple")
        if config.stop and config.mode is EvaluationMode.verl:
            raise ConfigError(
                "coding.evaluation.stop: verl's rollout does not support stop texts; "
                "remove it (--stop), or set coding.evaluation.mode=simple (--mode simple)"
            )
        if config.cluster and not config.base_url and config.mode is EvaluationMode.simple:
            raise ConfigError(
                f"coding.evaluation.cluster={config.cluster}: vLLM in this process generates on one "
                "machine; set coding.evaluation.mode=verl (--mode verl), or pass a server (--base-url)"
            )
        if config.ray_address and not config.cluster:
            raise ConfigError(
                f"coding.evaluation.ray_address={config.ray_address}: needs "
                "coding.evaluation.cluster=ray (--cluster ray)"
            )
        if config.extra_body and not config.base_url:
            raise ConfigError(
                "coding.evaluation.extra_body: only available with a server; set "
                "coding.evaluation.base_url"
            )
        Window.parse(config.from_date, config.to_date)
        return cls(
            config=replace(config, cutoff=day(config.cutoff, "cutoff")),
            run_dir=run_dir,
            seed=seed,
            protocol=protocol_of(config, prompt=prompt, observation_bytes=observation_bytes),
            shard=Shard.parse(config.shard),
            sandbox=sandbox,
            force=force,
            tasks=tasks,
        )


def simple_backend(config: EvaluationConfig, *, seed: int, on_cpu: bool) -> Backend:
    """Return the back end, not yet started: the configured server, or vLLM in this process.

    Args:
        on_cpu: use settings for vLLM's CPU build.

    Raises:
        ConfigError: a key has an invalid value; names it.
    """
    config = with_profile(config)
    if config.base_url is not None:
        from coding_model_project.evaluation.backends.openai_backend import OpenAIBackend

        return OpenAIBackend(config)
    from coding_model_project.evaluation.backends.vllm_backend import VllmBackend

    return VllmBackend(config, seed=seed, on_cpu=on_cpu)


# ── model profiles ────────────────────────────────────────────────────────────────────────────────

_PACKAGE, _FOLDER = "coding_model_project.evaluation", "model_profiles"
_MERGED = ("chat_template_kwargs", "extra_body")
"""Keys that merge entry by entry, so that an option changes a single entry."""


_OF_A_PROFILE = ("temperature", "top_p", *OPTIONAL, "max_tokens", "system_prompt", "extra_body")
"""The keys that a profile may have."""


def profile_names() -> list[str]:
    """Return the names of this package's profiles."""
    folder = resources.files(_PACKAGE) / _FOLDER
    return sorted(
        one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml")
    )


def read_profile(name: str) -> EvaluationConfig:
    """Read a profile.

    Args:
        name: name of a profile of this package, or the path of a YAML file.

    Raises:
        ConfigError: the profile is missing, or has a key or value that no profile has.
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
    known = f"known keys are {', '.join(_OF_A_PROFILE)}"
    try:
        given = OmegaConf.create(text)
        if unknown := [key for key in given if key not in _OF_A_PROFILE]:
            raise ConfigError(
                f"coding.evaluation.profile={name}: {unknown[0]}: no such key of a profile; {known}"
            )
        found = OmegaConf.to_object(
            OmegaConf.merge(OmegaConf.structured(EvaluationConfig(model="")), given)
        )
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"coding.evaluation.profile={name}: {error.full_key}: "
            f"{' '.join(str(error).split('full_key')[0].split())}; {known}"
        ) from error
    except (yaml.YAMLError, ValueError, TypeError, AssertionError) as error:
        raise ConfigError(
            f"coding.evaluation.profile={name}: not YAML of keys and values "
            f"({' '.join(str(error).split())})"
        ) from error
    assert isinstance(found, EvaluationConfig)
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
    for name in _OF_A_PROFILE:
        given, advised = getattr(config, name), getattr(profile, name)
        if name in _MERGED:
            changes[name] = {**advised, **given}
        elif given in (None, []):
            changes[name] = advised
    if config.base_url is None and not config.extra_body:
        changes["extra_body"] = {}  # only requests to a server have these fields
    found = replace(config, **changes)
    if config.protocol == "greedy" and found.temperature and config.temperature is None:
        raise ConfigError(
            f"coding.evaluation.profile={config.profile} samples at temperature={found.temperature:g}, "
            "and coding.evaluation.protocol=greedy does not: set coding.evaluation.protocol=sampled "
            "(--protocol sampled --n 1 draws one answer per problem), or temperature=0 to override the "
            "profile"
        )
    return found
