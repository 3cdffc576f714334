"""Greedy generation with transformers, for small models on a CPU where vLLM does not start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Self

from coding_model_project.errors import ConfigError, GenerationError, PromptError
from coding_model_project.evaluation.backends.generation import Completion, Messages, Sampling

_GATHER_S = 0.02
"""Seconds that a batch's first request waits for others."""


class TransformersBackend:
    """A back end (`evaluation.backends.generation.Backend`) that batches waiting requests."""

    repeatable = True

    def __init__(self, model: str, *, concurrency: int = 64) -> None:
        self.concurrency = concurrency
        self._path = model
        self._model: Any = None
        self._tokenizer: Any = None
        self._stops: list[int] = []
        self._waiting: list[tuple[list[int], Sampling, asyncio.Future[Completion]]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def identity(self) -> str:
        return f"transformers {metadata.version('transformers')} in this process"

    async def __aenter__(self) -> Self:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(self._path, local_files_only=True)
            self._model = AutoModelForCausalLM.from_pretrained(
                self._path, local_files_only=True, use_safetensors=True, dtype=torch.float32
            ).eval()
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            message = " ".join(str(error).split())[:300]
            raise ConfigError(f"transformers cannot load {self._path}: {message}") from error
        given = self._model.generation_config.eos_token_id
        ids = given if isinstance(given, list) else [given]
        self._stops = [one for one in {*ids, tokenizer.eos_token_id} if one is not None]
        self._tokenizer = tokenizer
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            await self._task

    async def check(self, sampling: Sampling) -> Sequence[str]:
        """See `Backend.check`; accepts greedy decoding only."""
        if sampling.temperature != 0 or sampling.optional().keys() - {"chat_template_kwargs"}:
            raise ConfigError("the transformers back end only supports greedy decoding")
        return ()

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """See `Backend.complete`."""
        prompt = self._tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        longest = self._model.config.max_position_embeddings
        if len(prompt) >= longest:
            raise PromptError(
                f"the prompt has {len(prompt)} tokens, and the model's limit is {longest}"
            )
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, sampling, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())
        return await answer

    async def _serve(self) -> None:
        while self._waiting:
            await asyncio.sleep(_GATHER_S)
            # Batch similar lengths, to minimise padding.
            self._waiting.sort(key=lambda one: len(one[0]))
            batch, self._waiting = (
                self._waiting[: self.concurrency],
                self._waiting[self.concurrency :],
            )
            try:
                made = await asyncio.to_thread(self._generate, [one[:2] for one in batch])
            except Exception as error:  # noqa: BLE001 - passed to the requests
                failed = GenerationError(f"transformers failed: {type(error).__name__}: {error}")
                for *_, answer in batch:
                    if not answer.done():
                        answer.set_exception(failed)
                continue
            for (*_, answer), completion in zip(batch, made, strict=True):
                if not answer.done():
                    answer.set_result(completion)

    def _generate(self, batch: Sequence[tuple[list[int], Sampling]]) -> list[Completion]:
        """Generate a batch. Shapes: B requests, T tokens of the longest prompt, padded on the left."""
        import torch

        max_new_tokens = max(sampling.max_tokens for _, sampling in batch)
        length = max(len(prompt) for prompt, _ in batch)
        pad = self._tokenizer.pad_token_id
        pad = self._stops[0] if pad is None else pad
        tokens_BT = torch.full((len(batch), length), pad)
        mask_BT = torch.zeros(len(batch), length, dtype=torch.long)
        for row, (prompt, _) in enumerate(batch):
            tokens_BT[row, length - len(prompt) :] = torch.tensor(prompt)
            mask_BT[row, length - len(prompt) :] = 1
        max_new_tokens = min(max_new_tokens, self._model.config.max_position_embeddings - length)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=tokens_BT,
                attention_mask=mask_BT,
                max_new_tokens=max(1, max_new_tokens),
                do_sample=False,
                eos_token_id=self._stops,
                pad_token_id=pad,
            )
        return [
            self._completion(row[length:].tolist(), sampling.max_tokens)
            for row, (_, sampling) in zip(output, batch, strict=True)
        ]

    def _completion(self, ids: list[int], max_new_tokens: int) -> Completion:
        end = next((i for i, one in enumerate(ids[:max_new_tokens]) if one in self._stops), None)
        own = ids[:max_new_tokens] if end is None else ids[:end]
        return Completion(
            text=self._tokenizer.decode(own, skip_special_tokens=True),
            n_tokens=len(own) + (end is not None),
            truncated=end is None,
        )
