"""Completions: what is asked for and what comes back, and vLLM in this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

Messages = list[dict[str, str]]
"""A conversation: `{"role": ..., "content": ...}`, the last one the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are drawn. Temperature 0 is greedy."""

    n: int = 1
    temperature: float = 0.0
    max_tokens: int = 1024
    top_p: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    n_tokens: int
    truncated: bool = False
    """Ended by the token limit and not by the model."""
    n_prompt_tokens: int | None = None
    """Of what was asked, where a server says so."""


class Backend(Protocol):
    """Something that answers conversations: an engine or a server. Entered before use."""

    concurrency: int
    """Requests at once that keep it busy."""

    @property
    def identity(self) -> str:
        """What it is, for the record.

        Raises:
            ConfigError: it is not installed.
        """
        ...

    @property
    def repeatable(self) -> bool:
        """Whether the same request with the same seed gives the same completion."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """One completion; `sampling.n` does not apply.

        Raises:
            GenerationError: it does not answer, after retries. Never an empty completion.
            PromptError: it cannot answer this conversation, which is too long for the model.
            ConfigError: it refuses this client or these settings.
        """
        ...


def start_engine(
    model: str, *, max_model_len: int | None, dtype: str, seed: int, **more: Any
) -> Any:
    """A vLLM engine in this process, so that nothing is left to clean up when that ends.

    Args:
        max_model_len: tokens of prompt and completion together; None takes the model's own limit.
        more: of `vllm.LLM`.
    """
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM

    return LLM(
        model=model,
        dtype=dtype,  # type: ignore[arg-type]
        seed=seed,
        max_model_len=max_model_len,
        disable_log_stats=True,
        **more,
    )


class VllmGenerator:
    """One vLLM engine, which can take the weights of further models of the same architecture.

    Args:
        max_model_len: tokens of prompt and completion together.
        seed: of the engine, which then draws the same completions for the same sequence of calls.
    """

    def __init__(
        self, model: str, *, max_model_len: int, dtype: str = "auto", seed: int = 0
    ) -> None:
        self._model = model
        self._engine = start_engine(
            model, max_model_len=max_model_len, dtype=dtype, seed=seed, enforce_eager=True
        )

    def load(self, model: str) -> None:
        """Use another model's weights. It must have the first one's architecture and tokenizer."""
        if model != self._model:
            # It warns of every layer that has no weights of its own, such as a rotary embedding.
            logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel("ERROR")
            self._engine.collective_rpc("reload_weights", kwargs={"weights_path": model})
            self._engine.reset_prefix_cache()
            self._model = model

    def generate(
        self, conversations: Sequence[Messages], sampling: Sampling
    ) -> list[list[Completion]]:
        """`sampling.n` completions per conversation, in order, with a progress bar."""
        from vllm import SamplingParams

        outputs = self._engine.chat(
            list(conversations),
            SamplingParams(
                n=sampling.n,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
            ),
            use_tqdm=True,
        )
        return [
            [Completion(text=c.text, n_tokens=len(c.token_ids)) for c in request.outputs]
            for request in outputs
        ]
