"""`coding.evaluation` as frozen values, and the back end it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coding_model_project.configs.schema import BaselineConfig, EvaluationMode
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.plan import Shard
from coding_model_project.evaluation.protocols import EvalProtocol, protocol
from coding_model_project.grading.prompts import PromptStyle


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is evaluated, and how."""

    run_dir: Path
    model: str
    seed: int
    datasets: tuple[str, ...]
    data_dir: Path | None
    limit: int | None
    max_tests: int | None
    protocol: EvalProtocol
    shard: Shard
    mode: str
    """What generates: `schema.EvaluationMode` by name."""
    wandb: bool

    @classmethod
    def of(cls, config: DictConfig) -> Settings:
        """From a configuration with a `coding:` subtree as `schema.BaselineConfig` describes it.

        Raises:
            ConfigError: names the key that makes no sense.
        """
        coding = _plain(config)["coding"]
        asked = coding["evaluation"]
        if asked["model"] == MISSING:
            raise ConfigError("coding.evaluation.model: no model given")
        for name in ("limit", "max_tests", "concurrency"):
            if asked[name] is not None and asked[name] < 1:
                raise ConfigError(f"coding.evaluation.{name}={asked[name]}: at least 1")
        if asked["base_url"] and asked["mode"] != EvaluationMode.simple.name:
            raise ConfigError("coding.evaluation.base_url: a server goes with mode=simple only")
        if asked["extra_body"] and not asked["base_url"]:
            raise ConfigError(
                "coding.evaluation.extra_body: only requests to a server have one; set "
                "coding.evaluation.base_url"
            )
        return cls(
            run_dir=Path(coding["run_dir"]),
            model=asked["model"],
            seed=coding["seed"],
            datasets=tuple(asked["datasets"]),
            data_dir=Path(asked["data_dir"]) if asked["data_dir"] else None,
            limit=asked["limit"],
            max_tests=asked["max_tests"],
            protocol=protocol(
                asked["protocol"],
                prompt=PromptStyle(coding["prompt"]),
                stop_early=asked["stop_early"],
                n=asked["n"],
                temperature=asked["temperature"],
                top_p=asked["top_p"],
                max_tokens=asked["max_tokens"],
                system_prompt=asked["system_prompt"],
                extra_body=asked["extra_body"],
                repair_rounds=asked["repair_rounds"],
                observation_bytes=coding["repair"]["observation_bytes"],
            ),
            shard=Shard.parse(asked["shard"]),
            mode=asked["mode"],
            wandb=asked["wandb"],
        )


def _plain(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration.

    Raises:
        ConfigError: an interpolation leads nowhere.
    """
    try:
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"{error.full_key}: {' '.join(str(error).split('full_key')[0].split())}; write \\${{ for "
            "${ in a text"
        ) from error


def new_config(coding: Mapping[str, Any], evaluation: Mapping[str, Any]) -> DictConfig:
    """A configuration as `recipes.baseline` composes it, without Hydra.

    Args:
        coding: values of keys of `coding:`.
        evaluation: values of keys of `coding.evaluation`; None leaves the default.

    Raises:
        ConfigError: a key or value that the schema does not have.
    """
    given = {name: value for name, value in evaluation.items() if value is not None}
    try:
        schema = OmegaConf.structured(BaselineConfig)
        return OmegaConf.create(
            {"coding": OmegaConf.merge(schema, dict(coding), {"evaluation": given})}
        )
    except OmegaConfBaseException as error:
        text = " ".join(str(error).split("full_key")[0].split())
        raise ConfigError(f"coding.{error.full_key}: {text}") from error


def judge_config(config: DictConfig, protocol: EvalProtocol) -> dict[str, Any]:
    """What `grading.judge.open_judge` needs: dense judging runs every test, sparse stops at a failure."""
    sandbox: Any = OmegaConf.to_container(config.coding.sandbox, resolve=True, enum_to_str=True)
    kind = "sparse" if protocol.stop_early else "dense"
    return {"prompt": str(protocol.prompt), "sandbox": sandbox, "reward": {"kind": kind}}


def simple_backend(config: DictConfig, *, on_cpu: bool) -> Backend:
    """The server that is named, else vLLM in this process; not yet started.

    Args:
        on_cpu: vLLM's CPU build, which needs other settings.
    """
    asked = config.coding.evaluation
    if asked.base_url is not None:
        from coding_model_project.evaluation.backends.openai_backend import OpenAIBackend

        return OpenAIBackend(
            asked.base_url,
            asked.model,
            concurrency=asked.concurrency or 32,
            send_seeds=asked.send_seeds,
            extra_body=OmegaConf.to_container(asked.extra_body, resolve=True),  # type: ignore[arg-type]
            token_limit_field=asked.token_limit_field.value,
            key_variable=asked.api_key_env,
            timeout_s=asked.timeout_s,
            retry_s=asked.retry_s,
        )
    from coding_model_project.evaluation.backends.vllm_backend import VllmBackend

    return VllmBackend(
        asked.model,
        max_model_len=asked.max_model_len,
        dtype=asked.dtype,
        seed=config.coding.seed,
        concurrency=asked.concurrency or 256,
        on_cpu=on_cpu,
    )
