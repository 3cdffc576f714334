"""Completions from vLLM in this process, for evaluation."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are drawn. Temperature 0 is greedy."""

    n: int = 1
    temperature: float = 0.0
    max_tokens: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    n_tokens: int


class VllmGenerator:
    """One vLLM engine, which can take the weights of further models of the same architecture.

    Args:
        max_model_len: tokens of prompt and completion together.
        seed: of the engine, which then draws the same completions for the same sequence of calls.
            Seeds per request fail on a CPU: "CPU Generator does not use offset" (vLLM 0.27.1).
    """

    def __init__(
        self, model: str, *, max_model_len: int, dtype: str = "auto", seed: int = 0
    ) -> None:
        # In this process, so that nothing is left to clean up and new weights load in milliseconds.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from vllm import LLM

        self._model = model
        self._engine: Any = LLM(
            model=model,
            dtype=dtype,  # type: ignore[arg-type]
            seed=seed,
            max_model_len=max_model_len,
            enforce_eager=True,
            disable_log_stats=True,
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
        self, conversations: Sequence[list[dict[str, str]]], sampling: Sampling
    ) -> list[list[Completion]]:
        """`sampling.n` completions per conversation, in order, with a progress bar."""
        from vllm import SamplingParams

        outputs = self._engine.chat(
            list(conversations),
            SamplingParams(
                n=sampling.n,
                temperature=sampling.temperature,
                max_tokens=sampling.max_tokens,
            ),
            use_tqdm=True,
        )
        return [
            [Completion(text=c.text, n_tokens=len(c.token_ids)) for c in request.outputs]
            for request in outputs
        ]
