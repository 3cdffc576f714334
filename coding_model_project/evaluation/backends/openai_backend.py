"""Back end for OpenAI-compatible servers: vLLM, SGLang, llama.cpp, hosted models.

Failures are handled by their meaning, and none becomes an empty completion:

    429, 408, 5xx, no connection, a cut or damaged answer,
    a generation that failed or was aborted                 retried, then GenerationError
    400, 413, 422 for a prompt, a content filter            PromptError: only this sample has no answer
    400, 422 for a field; 401, 403, 404 and the like        ConfigError (openai_errors.py)
"""

from __future__ import annotations

import asyncio
import difflib
import json
import random
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Self

import httpx
import stamina

from coding_model_project import strict_json
from coding_model_project.episodes.tool_calls import ToolCall
from coding_model_project.errors import ConfigError, FilteredError, GenerationError
from coding_model_project.evaluation.backends.generation import (
    OPTIONAL,
    Completion,
    Messages,
    Sampling,
)
from coding_model_project.evaluation.backends.openai_errors import (
    MESSAGES,
    TOKENS,
    Refusal,
    Reply,
    address_hint,
    bad_request,
    no_entry,
    no_such_model,
    not_found,
    only_an_error,
    probe,
)
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.http import Service, announced, bearer, reason, retry_after_s, secret_of
from coding_model_project.redaction import redacted

_SET_ELSEWHERE = {
    "model": "coding.evaluation.model",
    "messages": "coding.evaluation.system_prompt",
    "n": "coding.evaluation.n",
    "max_tokens": "coding.evaluation.max_tokens",
    "max_completion_tokens": "coding.evaluation.token_limit_field",
    "seed": "coding.evaluation.send_seeds",
}
"""Fields that `extra_body` must not contain, with the keys that set them."""
_ONLY_LEFT_OUT = ("temperature", "top_p", *OPTIONAL)
"""Fields that the protocol sets; `extra_body` may only remove them."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_AGAIN = frozenset({408, 409, 425, 429})
_THIS_PROMPT = frozenset({400, 413, 422})
_THINKING = ("enable_thinking", "thinking")
"""Chat template variables that turn reasoning on and off."""
_START_S = 20.0
"""Maximum seconds to wait for a server that is starting."""


class _Unanswered(Exception):
    """Raised for a missing or incomplete answer, to retry."""

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class OpenAIBackend:
    """A back end (`generation.Backend`) for an OpenAI-compatible server, at `base_url`."""

    def __init__(self, config: EvaluationConfig) -> None:
        self.concurrency = config.concurrency or 32
        self._address = _checked_url(config.base_url or "")
        self._url = redacted(self._address)
        self._service = Service("server", self._url)
        self._model = config.model
        self._seeds = config.send_seeds
        self._extra = _checked_extra(config.extra_body)
        self._limit_field = str(config.token_limit_field)
        self._timeout_s = config.timeout_s
        self._retry_s = max(config.retry_s, 0.001)
        variable = self._key_variable = config.api_key_env
        key = secret_of(variable)
        if variable != EvaluationConfig.api_key_env and not key:
            raise ConfigError(
                f"coding.evaluation.api_key_env={variable}: this environment variable is not set; "
                f"export {variable}=KEY"
            )
        self._has_key = bool(key)
        self._client = httpx.AsyncClient(
            headers=bearer(key),
            timeout=httpx.Timeout(self._timeout_s, connect=10.0),
            limits=httpx.Limits(
                max_connections=self.concurrency, max_keepalive_connections=self.concurrency
            ),
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

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def check(self, sampling: Sampling) -> Sequence[str]:
        """See `generation.Backend`; sends a few short probes if optional options are set."""
        draws = self._extra.get("temperature", 0) is not None
        return await probe(self._probe, sampling, self._url, draws=draws)

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """See `generation.Backend`."""
        fields = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **sampling.optional(),
            "seed": seed,
        }
        body = self._body(messages, sampling.max_tokens, fields)
        made = _completion(await self._ask("POST", "/chat/completions", body, self._retry_s))
        self._refuse_ignored(made, sampling)
        return made

    def _body(
        self, messages: Messages, max_tokens: int, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return a request's body. `extra_body` overrides all fields, and null removes one."""
        body = {
            "model": self._model,
            "messages": messages,
            self._limit_field: max_tokens,
            **fields,
            **self._extra,
        }
        if not self._seeds:
            body.pop("seed", None)
        return {name: value for name, value in body.items() if value is not None}

    async def _probe(self, fields: Mapping[str, Any]) -> Reply:
        body = self._body(MESSAGES, TOKENS, fields)
        try:
            response = await self._send("POST", "/chat/completions", body)
            if response.status_code != 200:
                return Reply(status=response.status_code, text="")
            answer = _parsed(response.content)
            _refuse_unfinished(answer)
            made = _completion(answer)
        except _Unanswered:  # the first real request retries and reports the reason
            return Reply(status=0, text="")
        return Reply(status=200, text=made.reasoning + made.text)

    def _refuse_ignored(self, made: Completion, sampling: Sampling) -> None:
        """Raise `ConfigError` if the completion shows that the server ignored an option."""
        found = [text for text in sampling.stop if text in made.text]
        if found and not self._extra.get("include_stop_str_in_output"):
            raise ConfigError(
                f"{self._url} ignores `stop`: an answer continues after {found[0]!r}; remove "
                "coding.evaluation.stop (--stop), or use a server that supports it"
            )
        kwargs = sampling.chat_template_kwargs
        off = next((name for name in _THINKING if kwargs.get(name) is False), None)
        if off and made.reasoning.strip():
            raise ConfigError(
                f"{self._url} ignores `chat_template_kwargs`: an answer has reasoning although "
                f"{off}=false; remove it (--chat-template-kwargs), or correct the server's chat "
                "template or reasoning parser"
            )

    async def _look(self) -> None:
        """Check that the server answers and, if it lists models, serves this one."""
        listed = await self._ask("GET", "/models", None, min(self._retry_s, _START_S))
        served = [str(model.get("id")) for model in listed.get("data") or []]
        if served and not _serves(served, self._model):
            close = difflib.get_close_matches(self._model, served, n=3)
            shown = [*close, *(name for name in served if name not in close)][:10]
            more = f" and {len(served) - 10} others" if len(served) > 10 else ""
            raise no_such_model(self._url, self._model, f"it serves {', '.join(shown)}{more}")

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, retry_s: float
    ) -> dict[str, Any]:
        try:
            with announced(self._service, retry_s=retry_s):
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
            raise GenerationError(f"{self._url}: {error}; retried for {retry_s:.0f} s") from error
        raise AssertionError("unreachable: the loop ends by an answer or an exception")

    async def _once(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        response = await self._send(method, path, body)
        if response.status_code == 200 and (body is not None or _is_json(response)):
            answer = _parsed(response.content)
            if not only_an_error(answer):
                if body is not None:
                    _refuse_unfinished(answer)
                self._service.worked()
                return answer
        refusal = Refusal.of(response)
        status = refusal.means
        if status in _AGAIN or status >= 500:
            raise _Unanswered(str(refusal), retry_after_s(response.headers))
        self._service.worked()
        if status in (401, 403):
            raise no_entry(self._url, refusal, self._key_variable, has_key=self._has_key)
        if body is None:
            return await self._without_models(refusal)
        if status in _THIS_PROMPT:
            raise bad_request(self._url, self._model, refusal, body, self._extra)
        if status in (404, 405):
            raise not_found(self._url, self._model, refusal)
        raise ConfigError(f"{self._url}{path} answers {refusal}; {address_hint(self._url)}")

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._client.request(method, self._address + path, json=body)
        except TimeoutError:
            raise _Unanswered(f"no answer within {self._timeout_s:.0f} s") from None
        except httpx.TransportError as error:
            raise _Unanswered(reason(error)) from error
        except httpx.DecodingError as error:
            raise _Unanswered(f"a damaged answer ({error})") from error

    async def _without_models(self, refusal: Refusal) -> dict[str, Any]:
        """Handle a server that does not list models at this address.

        Raises:
            ConfigError: the list is at another address, or the server returns a web page.
        """
        if not self._url.endswith("/v1"):
            response = await self._send("GET", "/v1/models", None)
            if response.status_code in (200, 401, 403) and _is_json(response):
                raise ConfigError(
                    f"coding.evaluation.base_url={self._url}: the server's API is at "
                    f"{self._url}/v1; use that address (--base-url)"
                )
        if refusal.means in (404, 405):
            return {}  # lists no models: the first completion shows whether it serves this one
        raise ConfigError(
            f"{self._url}/models answers {refusal}; {address_hint(self._url)} (--base-url, "
            "coding.evaluation.base_url)"
        )


def _serves(served: Sequence[str], model: str) -> bool:
    """Return whether a list of models covers a name: routers take a suffix such as `:nitro` or
    `:together`, Ollama leaves out `:latest`, and a proxy lists `openai/*`."""
    names = (model, model.rpartition(":")[0], f"{model}:latest")
    return any(name in served for name in names) or any(fnmatchcase(model, one) for one in served)


def _checked_url(base_url: str) -> str:
    url, given = base_url.rstrip("/"), f"coding.evaluation.base_url={base_url} (--base-url)"
    try:
        known = httpx.URL(url).scheme in ("http", "https") and httpx.URL(url).host
    except httpx.InvalidURL:
        known = False
    if not known:
        raise ConfigError(f"{given}: expected a URL such as http://localhost:8000/v1")
    stripped = url.removesuffix("/completions").removesuffix("/chat")
    if stripped != url:
        raise ConfigError(f"{given}: expected the URL up to the version: {stripped}")
    return url


def _checked_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    for name in extra:
        if name == "stream":
            raise ConfigError("coding.evaluation.extra_body: `stream` is not supported; remove it")
        if name in _SET_ELSEWHERE:
            raise ConfigError(
                f"coding.evaluation.extra_body: `{name}` is set by {_SET_ELSEWHERE[name]}; remove it"
            )
        if name in _ONLY_LEFT_OUT and extra[name] is not None:
            raise ConfigError(
                f"coding.evaluation.extra_body: `{name}` is set by coding.evaluation.{name}; here it "
                "can only be null, which removes it"
            )
    return dict(extra)


def _is_json(response: httpx.Response) -> bool:
    """Return whether a response may be an API's answer rather than a web page."""
    return "html" not in response.headers.get("content-type", "") and (
        not response.content.lstrip().startswith(b"<")
    )


def _parsed(content: bytes) -> dict[str, Any]:
    """Parse a response; raise `_Unanswered` if it is cut, which makes it invalid JSON."""
    if content.startswith(b"data:"):
        raise ConfigError("the server streams its answers although no request asks for it")
    try:
        answer = strict_json.loads(content, repair=True)
    except strict_json.UnusableValue:  # a call that the model nested too deeply: no reply
        answer = _NO_REPLY
    except ValueError:
        raise _Unanswered(f"an incomplete answer ({len(content)} bytes)") from None
    if not isinstance(answer, dict):
        raise _Unanswered("an answer that is not a JSON object")
    return answer


def _refuse_unfinished(answer: dict[str, Any]) -> None:
    """Check that an answer is complete; in a cut one the choice has no finish reason.

    Raises:
        _Unanswered: the answer is incomplete.
        ConfigError: the server does not count tokens, which all metrics need.
    """
    match answer:
        case {"choices": [{"error": (dict() | str()) as error}, *_]} if error:
            raise _Unanswered(f"the generation failed: {str(error)[:200]}")
        case {"choices": [{"finish_reason": str(why)}, *_]} if why.lower() in _NO_ENDS:
            raise _Unanswered(f"the generation ended with finish_reason={why!r}")
        case {"choices": [{"finish_reason": str(why)}, *_]} if why:
            pass
        case _:
            raise _Unanswered(f"an answer without a finished choice: {str(answer)[:200]}")
    match answer:
        case {"usage": {"completion_tokens": int()}}:
            return
    raise ConfigError("the server's answers lack token counts (usage.completion_tokens)")


_NO_ENDS = frozenset({"error", "abort", "aborted", "cancelled", "canceled"})
"""Finish reasons of generations that the server did not end: vLLM, SGLang, OpenRouter."""

_NO_REPLY = {"choices": [{"finish_reason": "stop"}], "usage": {"completion_tokens": 0}}


def _completion(answer: dict[str, Any]) -> Completion:
    """Return the completion of a checked answer.

    Raises:
        GenerationError: the answer has another form than OpenAI's.
        FilteredError: a content filter ended the answer.
    """
    choice = answer["choices"][0]
    if choice["finish_reason"] == "content_filter":
        raise FilteredError("the server's content filter ended the answer")
    try:
        message, usage = choice.get("message") or {}, answer["usage"]
        # vLLM before 0.11 and DeepSeek use the first field; later vLLM and OpenRouter the second.
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        reasoning = _text(reasoning) or _text(message.get("content"), thinking=True)
        counted = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
        return Completion(
            text=_text(message.get("content")),
            n_tokens=usage["completion_tokens"],
            truncated=choice["finish_reason"] == "length",
            n_prompt_tokens=usage.get("prompt_tokens"),
            reasoning=reasoning,
            n_reasoning_tokens=counted if isinstance(counted, int) else None,
            tool_calls=tuple(map(_tool_call, message.get("tool_calls") or ())),
        )
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise GenerationError(f"the server's answer is not a chat completion: {error}") from error


def _text(content: object, *, thinking: bool = False) -> str:
    """Return a message's text, or the reasoning that its content holds, in parts.

    Servers return content as text or as a list of parts: {type: text, text}, and for reasoning
    {type: thinking | reasoning, thinking | text | summary}, whose text may be in parts again.
    """
    if isinstance(content, str):
        return "" if thinking else content
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        fields: dict[str, Any] = part if isinstance(part, dict) else {"text": part}
        thinks = fields.get("type") in ("thinking", "reasoning")
        if thinks and thinking:
            found = (fields.get(key) for key in ("thinking", "text", "summary"))
            texts.append(_text(next(filter(None, found), "")))
        elif not thinks and not thinking:
            texts.append(_text(fields.get("text")))
    return "".join(texts)


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    """Parse a tool call; some servers return its arguments as an object."""
    function = call.get("function") or {}
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(name=str(function.get("name")), arguments=text)


def _backoff(error: Exception) -> bool | float:
    if not isinstance(error, _Unanswered):
        return False
    if error.retry_after_s is None:
        return True
    # Jitter: clients with the same Retry-After must not retry simultaneously.
    return error.retry_after_s + random.random() * (0.1 + error.retry_after_s / 4)
