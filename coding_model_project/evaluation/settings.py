"""`coding.evaluation` as frozen values, and the back end that it selects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.dates import Window, day
from coding_model_project.evaluation.evaluation_config import EvaluationConfig, EvaluationMode
from coding_model_project.evaluation.plan import Shard
from coding_model_project.evaluation.profiles import with_profile
from coding_model_project.evaluation.protocols import EvalProtocol, protocol
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.sandbox.sandbox_config import SandboxConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an evaluation."""

    run_dir: Path
    model: str
    seed: int
    datasets: tuple[str, ...]
    data_dir: Path | None
    window: Window
    """Days of publication of the problems."""
    cutoff: str | None
    """Last day of the model's training data."""
    split: str | None
    """Split of the problems; None for all."""
    limit: int | None
    max_tests: int | None
    columns: Mapping[str, str]
    """Columns of the data sets' files for fields with other names there."""
    protocol: EvalProtocol
    profile: str | None
    """Name of the model profile whose values the protocol has, for the record."""
    shard: Shard
    mode: EvaluationMode
    wandb: bool

    sandbox: SandboxConfig
    force: bool
    """Resume although settings have changed."""

    @classmethod
    def of(
        cls,
        config: EvaluationConfig,
        *,
        run_dir: Path,
        seed: int,
        prompt: PromptStyle,
        observation_bytes: int,
        sandbox: SandboxConfig,
        force: bool,
    ) -> Settings:
        """Create settings from a configuration.

        Args:
            observation_bytes: maximum bytes of a failing test shown to the model for a repair.

        Raises:
            ConfigError: a key has an invalid value; names it.
        """
        config = with_profile(config)
        for name in ("limit", "max_tests", "concurrency"):
            if (value := getattr(config, name)) is not None and value < 1:
                raise ConfigError(f"coding.evaluation.{name}={value}: must be at least 1")
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
        return cls(
            run_dir=run_dir,
            model=config.model,
            seed=seed,
            datasets=tuple(config.datasets),
            data_dir=Path(config.data_dir) if config.data_dir else None,
            window=Window.parse(config.from_date, config.to_date),
            cutoff=day(config.cutoff, "cutoff"),
            split=config.split,
            limit=config.limit,
            max_tests=config.max_tests,
            columns=dict(config.columns),
            protocol=protocol(
                config.protocol,
                prompt=prompt,
                stop_early=config.stop_early,
                rule=config.rule,
                n=config.n,
                temperature=config.temperature,
                top_p=config.top_p,
                max_tokens=config.max_tokens,
                top_k=config.top_k,
                min_p=config.min_p,
                presence_penalty=config.presence_penalty,
                frequency_penalty=config.frequency_penalty,
                repetition_penalty=config.repetition_penalty,
                stop=tuple(config.stop),
                chat_template_kwargs=dict(config.chat_template_kwargs),
                system_prompt=config.system_prompt,
                extra_body=config.extra_body,
                repair_rounds=config.repair_rounds,
                observation_bytes=observation_bytes,
            ),
            profile=config.profile,
            shard=Shard.parse(config.shard),
            mode=config.mode,
            wandb=config.wandb,
            sandbox=sandbox,
            force=force,
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

        return OpenAIBackend(
            config.base_url,
            config.model,
            concurrency=config.concurrency or 32,
            send_seeds=config.send_seeds,
            extra_body=config.extra_body,
            token_limit_field=config.token_limit_field,
            key_variable=config.api_key_env,
            timeout_s=config.timeout_s,
            retry_s=config.retry_s,
        )
    from coding_model_project.evaluation.backends.vllm_backend import VllmBackend, VllmEngine

    engine = VllmEngine(
        max_model_len=config.max_model_len,
        dtype=config.dtype,
        seed=seed,
        concurrency=config.concurrency or 256,
        on_cpu=on_cpu,
    )
    return VllmBackend(config.model, engine)
