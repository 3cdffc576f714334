"""`coding.evaluation` as frozen values, and the back end it names."""

from __future__ import annotations

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
    """What is evaluated, and how."""

    run_dir: Path
    model: str
    seed: int
    datasets: tuple[str, ...]
    data_dir: Path | None
    window: Window
    """Of the days on which problems were published."""
    cutoff: str | None
    """The end of the model's training data."""
    limit: int | None
    max_tests: int | None
    protocol: EvalProtocol
    profile: str | None
    """Where the protocol has values from a model's profile, its name, for the record."""
    shard: Shard
    mode: EvaluationMode
    wandb: bool

    sandbox: SandboxConfig
    force: bool
    """Go on in a folder although settings have changed."""

    @classmethod
    def of(
        cls,
        asked: EvaluationConfig,
        *,
        run_dir: Path,
        seed: int,
        prompt: PromptStyle,
        observation_bytes: int,
        sandbox: SandboxConfig,
        force: bool,
    ) -> Settings:
        """From a configuration.

        Args:
            observation_bytes: most of a failing test that a model is shown to repair its program.

        Raises:
            ConfigError: names the key that makes no sense.
        """
        asked = with_profile(asked)
        for name in ("limit", "max_tests", "concurrency"):
            if (value := getattr(asked, name)) is not None and value < 1:
                raise ConfigError(f"coding.evaluation.{name}={value}: at least 1")
        if asked.base_url and asked.mode is not EvaluationMode.simple:
            raise ConfigError("coding.evaluation.base_url: a server goes with mode=simple only")
        if asked.stop and asked.mode is EvaluationMode.verl:
            raise ConfigError(
                "coding.evaluation.stop: verl's rollout does not take texts that end a completion; "
                "remove it (--stop), or set coding.evaluation.mode=simple (--mode simple)"
            )
        if asked.cluster and not asked.base_url and asked.mode is EvaluationMode.simple:
            raise ConfigError(
                f"coding.evaluation.cluster={asked.cluster}: vLLM in this process generates on one "
                "machine; set coding.evaluation.mode=verl (--mode verl), or name a server (--base-url)"
            )
        if asked.ray_address and not asked.cluster:
            raise ConfigError(
                f"coding.evaluation.ray_address={asked.ray_address}: needs "
                "coding.evaluation.cluster=ray (--cluster ray)"
            )
        if asked.extra_body and not asked.base_url:
            raise ConfigError(
                "coding.evaluation.extra_body: only requests to a server have one; set "
                "coding.evaluation.base_url"
            )
        return cls(
            run_dir=run_dir,
            model=asked.model,
            seed=seed,
            datasets=tuple(asked.datasets),
            data_dir=Path(asked.data_dir) if asked.data_dir else None,
            window=Window.parse(asked.from_date, asked.to_date),
            cutoff=day(asked.cutoff, "cutoff"),
            limit=asked.limit,
            max_tests=asked.max_tests,
            protocol=protocol(
                asked.protocol,
                prompt=prompt,
                stop_early=asked.stop_early,
                n=asked.n,
                temperature=asked.temperature,
                top_p=asked.top_p,
                max_tokens=asked.max_tokens,
                top_k=asked.top_k,
                min_p=asked.min_p,
                presence_penalty=asked.presence_penalty,
                frequency_penalty=asked.frequency_penalty,
                repetition_penalty=asked.repetition_penalty,
                stop=tuple(asked.stop),
                chat_template_kwargs=dict(asked.chat_template_kwargs),
                system_prompt=asked.system_prompt,
                extra_body=asked.extra_body,
                repair_rounds=asked.repair_rounds,
                observation_bytes=observation_bytes,
            ),
            profile=asked.profile,
            shard=Shard.parse(asked.shard),
            mode=asked.mode,
            wandb=asked.wandb,
            sandbox=sandbox,
            force=force,
        )


def simple_backend(asked: EvaluationConfig, *, seed: int, on_cpu: bool) -> Backend:
    """The server that is named, else vLLM in this process; not yet started.

    Args:
        on_cpu: vLLM's CPU build, which needs other settings.

    Raises:
        ConfigError: a key makes no sense; names it.
    """
    asked = with_profile(asked)
    if asked.base_url is not None:
        from coding_model_project.evaluation.backends.openai_backend import OpenAIBackend

        return OpenAIBackend(
            asked.base_url,
            asked.model,
            concurrency=asked.concurrency or 32,
            send_seeds=asked.send_seeds,
            extra_body=asked.extra_body,
            token_limit_field=asked.token_limit_field,
            key_variable=asked.api_key_env,
            timeout_s=asked.timeout_s,
            retry_s=asked.retry_s,
        )
    from coding_model_project.evaluation.backends.vllm_backend import VllmBackend, VllmEngine

    engine = VllmEngine(
        max_model_len=asked.max_model_len,
        dtype=asked.dtype,
        seed=seed,
        concurrency=asked.concurrency or 256,
        on_cpu=on_cpu,
    )
    return VllmBackend(asked.model, engine)
