"""Any server of OpenAI's chat completions as a back end: vLLM, SGLang, llama.cpp, hosted models.

What a failure means decides what becomes of it, and none of them is an empty completion:

    429, 408, 5xx, no connection, a cut or damaged answer   tried again, then GenerationError
    400, 413, 422                                           PromptError: this one sample has no answer
    401, 403, 404 and the like                              ConfigError
"""

from __future__ import annotations

import asyncio
import os
import random
from types import TracebackType
from typing import Any, Self

import httpx
import orjson
import stamina

from coding_model_project.errors import ConfigError, GenerationError, PromptError
from coding_model_project.evaluation.generation import Completion, Messages, Sampling
from coding_model_project.retry_after import retry_after_s

KEY_VARIABLE = "OPENAI_API_KEY"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_AGAIN = frozenset({408, 409, 425, 429})
_THIS_PROMPT = frozenset({400, 413, 422})
_START_S = 20.0
"""A server that is just starting is waited for this long at most."""


class _Unanswered(Exception):
    """No answer, or not a whole one: worth another try."""

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class OpenAIBackend:
    """See `generation.Backend`.

    Args:
        base_url: up to and with the version: http://localhost:8000/v1.
        model: the name it is served by.
        send_seeds: send each request's seed; some servers refuse the field, some ignore it.
        timeout_s: for one answer as a whole.
        retry_s: a request that got no answer for so long ends the evaluation.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        concurrency: int = 32,
        send_seeds: bool = True,
        timeout_s: float = 600.0,
        retry_s: float = 300.0,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"base_url={base_url}: not an address like http://localhost:8000/v1")
        self.concurrency = concurrency
        self._url = base_url.rstrip("/")
        self._model = model
        self._seeds = send_seeds
        self._timeout_s = timeout_s
        self._retry_s = max(retry_s, 0.001)
        key = os.environ.get(KEY_VARIABLE)
        self._client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        )

    @property
    def identity(self) -> str:
        return f"{self._url} (OpenAI-compatible)"

    @property
    def repeatable(self) -> bool:
        return self._seeds

    async def __aenter__(self) -> Self:
        try:
            await self._look()
        except BaseException:
            await self._client.aclose()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """See `generation.Backend`."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if self._seeds:
            body["seed"] = seed
        return _completion(await self._ask("POST", "/chat/completions", body, self._retry_s))

    async def _look(self) -> None:
        """Whether the server is there and serves the model, as far as it says."""
        listed = await self._ask("GET", "/models", None, min(self._retry_s, _START_S))
        served = [str(model.get("id")) for model in listed.get("data") or []]
        if served and self._model not in served:
            raise ConfigError(
                f"{self._url} does not serve {self._model}; it serves {', '.join(served[:10])}"
            )

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, retry_s: float
    ) -> dict[str, Any]:
        try:
            async for attempt in stamina.retry_context(
                on=_backoff,
                attempts=None,
                timeout=retry_s,
                wait_initial=_FIRST_WAIT_S,
                wait_max=_LONGEST_WAIT_S,
            ):
                with attempt:
                    return await self._once(method, path, body)
        except _Unanswered as error:
            raise GenerationError(f"{self._url}: {error}; tried for {retry_s:.0f} s") from error
        raise AssertionError("unreachable: the loop ends by an answer or an exception")

    async def _once(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.request(method, self._url + path, json=body)
        except TimeoutError:
            raise _Unanswered(f"no answer within {self._timeout_s:.0f} s") from None
        except httpx.TransportError as error:
            raise _Unanswered(f"{type(error).__name__} {error}".strip()) from error
        except httpx.DecodingError as error:
            raise _Unanswered(f"a damaged answer ({error})") from error
        status = response.status_code
        if status in _AGAIN or status >= 500:
            raise _Unanswered(f"HTTP {status}: {_says(response)}", retry_after_s(response.headers))
        if body is not None and status in _THIS_PROMPT:
            raise PromptError(f"the server refuses it with HTTP {status}: {_says(response)}")
        if status in (401, 403):
            raise ConfigError(
                f"{self._url} answers HTTP {status}: set {KEY_VARIABLE} to a key that it knows"
            )
        if status == 404 and body is None:
            return {}  # it lists no models: the first completion will show
        if status != 200:
            raise ConfigError(f"{self._url}{path} answers HTTP {status}: {_says(response)}")
        return _checked(response.content, completes=body is not None)


def _checked(content: bytes, *, completes: bool) -> dict[str, Any]:
    """A whole answer. What is cut short is no JSON, or a choice that nothing has ended.

    Raises:
        _Unanswered: it is not whole.
        ConfigError: the server does not count tokens, which every number here is given with.
    """
    try:
        answer = orjson.loads(content)
    except ValueError:
        raise _Unanswered(f"an answer that is cut short ({len(content)} bytes)") from None
    if not isinstance(answer, dict):
        raise _Unanswered("an answer that is no JSON object")
    if not completes:
        return answer
    choices = answer.get("choices")
    if not choices or not choices[0].get("finish_reason"):
        raise _Unanswered(f"an answer without an ended choice: {str(answer)[:200]}")
    if not isinstance((answer.get("usage") or {}).get("completion_tokens"), int):
        raise ConfigError("the server's answers do not say how many tokens they have (usage)")
    return answer


def _completion(answer: dict[str, Any]) -> Completion:
    choice = answer["choices"][0]
    return Completion(
        text=choice.get("message", {}).get("content") or "",
        n_tokens=answer["usage"]["completion_tokens"],
        truncated=choice["finish_reason"] == "length",
        n_prompt_tokens=answer["usage"].get("prompt_tokens"),
    )


def _backoff(error: Exception) -> bool | float:
    if not isinstance(error, _Unanswered):
        return False
    if error.retry_after_s is None:
        return True
    # Those who were told the same time do not all come back at once.
    return error.retry_after_s + random.random() * (0.1 + error.retry_after_s / 4)


def _says(response: httpx.Response) -> str:
    return " ".join(response.text.split())[:200]
