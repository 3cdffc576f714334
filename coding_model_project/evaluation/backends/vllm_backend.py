"""Back end with vLLM in this process, which batches requests continuously."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Self

from coding_model_project.episodes.tool_calls import for_template
from coding_model_project.errors import ConfigError, GenerationError, PromptError
from coding_model_project.evaluation.backends.generation import (
    Completion,
    Messages,
    Sampling,
    count_reasoning,
    reasoning_marks,
    refuse_unknown_variables,
)
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.extras import without_collections

CPU_CACHE_BYTES = 1 << 30
"""KV cache on a CPU, which vLLM zeroes at start-up; VLLM_CPU_KVCACHE_SPACE (in GiB) replaces it."""

_Made = tuple[Completion, Sequence[int]]
"""A completion and its token ids."""


@dataclass(frozen=True, slots=True)
class _Request:
    prompt_ids: list[int]
    params: Any
    answer: asyncio.Future[_Made]


class VllmBackend:
    """A back end (`generation.Backend`) that steps the engine in a thread.

    Each request has its own seed, so a completion does not depend on other requests, except for the
    rounding of sums, whose order depends on the batch.

    Args:
        config: the evaluation's keys; the model is a folder or a Hub name.
        on_cpu: disable chunked prefill and compilation. vLLM's CPU build rejects seeds with chunked
            prefill ("CPU Generator does not use offset", vLLM 0.27.1).
    """

    repeatable = True

    def __init__(self, config: EvaluationConfig, *, seed: int, on_cpu: bool) -> None:
        self.concurrency = config.concurrency or 256
        self._model = config.model
        self._options: dict[str, Any] = {
            "max_model_len": config.max_model_len,
            "dtype": config.dtype,
            "seed": seed,
            "max_num_seqs": self.concurrency,
        }
        if on_cpu:
            self._options |= {
                "enable_chunked_prefill": False,
                "enforce_eager": True,
                "kv_cache_memory_bytes": CPU_CACHE_BYTES,
            }
        self._llm: Any = None
        self._engine: Any = None
        self._tokenizer: Any = None
        self._max_len = 0
        self._marks: tuple[int | None, int | None] = (None, None)
        self._inbox: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failed: GenerationError | None = None

    @property
    def identity(self) -> str:
        try:
            return f"vLLM {metadata.version('vllm')} in this process"
        except metadata.PackageNotFoundError as error:
            raise ConfigError(
                f"coding.evaluation.model={self._model}: vLLM is not installed; run "
                "`make setup`, or pass a server (--base-url, coding.evaluation.base_url)"
            ) from error

    async def __aenter__(self) -> Self:
        llm = self._llm = self._started()
        self._engine = llm.llm_engine
        self._tokenizer = llm.get_tokenizer()
        self._max_len = llm.model_config.max_model_len
        if self._tokenizer.chat_template is None:
            raise ConfigError(
                f"{self._model} has no chat template; save one with its tokenizer "
                "(chat_template.jinja)"
            )
        self._marks = reasoning_marks(self._tokenizer)
        self._thread = threading.Thread(
            target=self._run, args=(asyncio.get_running_loop(),), name="vllm", daemon=True
        )
        self._thread.start()
        return self

    def _started(self) -> Any:
        """Return the model's `vllm.LLM`, in this process, so that no child outlives it.

        Raises:
            ConfigError: vLLM cannot load the model.
            GenerationError: the engine does not start.
        """
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        with without_collections():
            from vllm import LLM

        try:
            return LLM(model=self._model, disable_log_stats=True, **self._options)
        except (ValueError, OSError) as error:
            raise ConfigError(f"vLLM cannot load {self._model}: {_said(error)}") from error
        except RuntimeError as error:  # out of memory, or the device is in use
            raise GenerationError(f"vLLM cannot start: {_said(error)}") from error

    async def __aexit__(self, *_: object) -> None:
        self._inbox.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def check(self, sampling: Sampling) -> Sequence[str]:
        """See `generation.Backend`; vLLM supports all options."""
        template = self._tokenizer.get_chat_template()
        refuse_unknown_variables(template, self._model, sampling.chat_template_kwargs)
        return ()

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """See `generation.Backend`."""
        from jinja2 import TemplateError
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        options = sampling.optional()
        in_prompt = {"tools": options.pop("tools", None), **options.pop("chat_template_kwargs", {})}
        try:
            prompt_ids = self._tokenizer.apply_chat_template(
                for_template(messages),
                tokenize=True,
                add_generation_prompt=True,
                return_dict=False,
                **in_prompt,
            )
        except TemplateError as error:
            raise PromptError(f"the chat template refuses the messages: {_said(error)}") from error
        if len(prompt_ids) >= self._max_len:
            raise PromptError(
                f"the prompt has {len(prompt_ids)} tokens, and the model's limit is {self._max_len}"
            )
        params = SamplingParams(
            **options,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=seed,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        answer = asyncio.get_running_loop().create_future()
        self._inbox.put(_Request(prompt_ids, params, answer))
        if self._failed is not None:  # checked after the put, so that no request waits for ever
            raise self._failed
        made, output_ids = await answer
        opens, closes = self._marks
        counted = count_reasoning(prompt_ids, output_ids, opens=opens, closes=closes)
        return replace(made, n_reasoning_tokens=counted)

    # ── the engine's thread ───────────────────────────────────────────────────────────────────────

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Step the engine until a stop request; pass its errors to the waiting requests."""
        waiting: dict[str, _Request] = {}
        numbers = itertools.count()
        try:
            while self._take(waiting, numbers):
                ended = [output for output in self._engine.step() if output.finished]
                if ended:
                    done = [(waiting.pop(o.request_id).answer, _completion(o)) for o in ended]
                    loop.call_soon_threadsafe(_answer, done)
        except Exception as error:  # noqa: BLE001 - passed to the requests
            self._failed = GenerationError(f"vLLM failed: {type(error).__name__}: {_said(error)}")
            self._failed.__cause__ = error
            rest = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
            unanswered = [one.answer for one in (*waiting.values(), *rest) if one is not None]
            loop.call_soon_threadsafe(_answer, [(answer, self._failed) for answer in unanswered])

    def _take(self, waiting: dict[str, _Request], numbers: itertools.count[int]) -> bool:
        """Pass new requests to the engine, waiting while it is idle; return False to stop."""
        while True:
            try:
                request = self._inbox.get(block=not waiting)
            except queue.Empty:
                return True
            if request is None:
                return False
            number = str(next(numbers))
            waiting[number] = request
            prompt = {"prompt_token_ids": request.prompt_ids}
            self._engine.add_request(number, prompt, request.params)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _completion(output: Any) -> _Made:
    (best,) = output.outputs
    if best.finish_reason in ("abort", "error"):
        raise GenerationError(f"a generation ended with finish_reason={best.finish_reason}")
    made = Completion(
        text=best.text,
        n_tokens=len(best.token_ids),
        n_prompt_tokens=len(output.prompt_token_ids or ()),
        truncated=best.finish_reason == "length",
    )
    return made, best.token_ids


def _answer(done: Sequence[tuple[asyncio.Future[_Made], _Made | GenerationError]]) -> None:
    for answer, made in done:
        if not answer.done():
            failed = isinstance(made, GenerationError)
            answer.set_exception(made) if failed else answer.set_result(made)
