"""Refusals of OpenAI-compatible servers as this project's errors, and probes of ignored options.

Reads the error formats of OpenAI, vLLM and FastAPI, and plain text.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from coding_model_project.errors import ConfigError, FilteredError, PromptError
from coding_model_project.evaluation.backends.generation import OPTIONAL, Messages, Sampling

_TOO_LONG = re.compile(r"context (length|window|size)|too long|prompt is too large", re.IGNORECASE)
_NO_MODEL = re.compile(r"model\b.*\b(not (exist|found)|unknown|not supported)", re.IGNORECASE)
_NO_TEMPLATE = re.compile(r"chat.template\b(?!_kwargs)", re.IGNORECASE)
_PARAMETER = re.compile(
    r"(unsupported|unrecognized|unknown|unexpected|invalid|extra)\W+(\w+\W+){0,3}?"
    r"(parameter|argument|field|input|value|key)|not (supported|permitted|allowed)|is too large",
    re.IGNORECASE,
)
_BOUND = re.compile(r"\bmust be\b", re.IGNORECASE)
_NO_SUCH_PATH = re.compile(r"unexpected endpoint", re.IGNORECASE)
_PAGE = "a web page"
_LIMITS = ("max_tokens", "max_completion_tokens")
_SHOWN = 200
"""Maximum characters of a server's message in ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A server's error response."""

    status: int
    means: int
    """HTTP status that says what is wrong: some servers send 200 or 500 with another reason."""
    message: str
    parameter: str | None = None
    """Field of the request that the error names, if any."""
    code: str = ""

    @classmethod
    def of(cls, response: httpx.Response) -> Refusal:
        """Parse an unsuccessful response, or a successful one whose content is only an error."""
        try:
            content = orjson.loads(response.content)
        except ValueError:
            content = {}
        detail: Any = content
        if isinstance(content, dict):
            detail = content.get("error") or content.get("detail") or content
        parameter, code, kind = None, "", ""
        if isinstance(detail, list) and detail and isinstance(detail[0], dict):  # FastAPI's
            place = [str(part) for part in detail[0].get("loc") or ()]
            parameter = place[1] if place[:1] == ["body"] and len(place) > 1 else None
            code, detail = (
                str(detail[0].get("type") or ""),
                f"{'.'.join(place)}: {detail[0].get('msg')}",
            )
        elif isinstance(detail, dict):
            parameter = re.split(r"[.\[]", str(detail.get("param") or ""))[0] or None
            code, kind = str(detail.get("code") or ""), str(detail.get("type") or "")
            detail = detail.get("message")
        text = detail if isinstance(detail, str) and detail else response.text
        if text.lstrip().startswith("<"):
            text = _PAGE
        message = " ".join(text.split())[:_SHOWN]
        return cls(
            status=response.status_code,
            means=_meant(response.status_code, code, kind, message),
            message=message,
            parameter=parameter,
            code=code,
        )

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.message}"


def only_an_error(answer: object) -> bool:
    """Return whether a successful response holds nothing but an error, as of LM Studio and OpenRouter."""
    return isinstance(answer, dict) and bool(answer.get("error")) and not answer.get("choices")


def _meant(status: int, code: str, kind: str, message: str) -> int:
    if kind == "exceed_context_size_error":  # llama.cpp, with 500 in some versions
        return 400
    if status != 200 or message == _PAGE:
        return status
    if code.isdecimal():
        return int(code)
    if _TOO_LONG.search(message):
        return 400
    return 404 if _NO_SUCH_PATH.search(message) else 500


def no_entry(url: str, refusal: Refusal, variable: str, *, has_key: bool) -> ConfigError:
    """Return the error for HTTP 401 and 403."""
    remedy = (
        f"the server does not accept the key in the environment variable {variable}"
        if has_key
        else f"set the environment variable {variable} to a key that the server accepts"
    )
    return ConfigError(
        f"{url} answers {refusal}; {remedy} (--api-key-env, coding.evaluation.api_key_env)"
    )


def not_found(url: str, model: str, refusal: Refusal) -> ConfigError:
    """Return the error for HTTP 404 and 405 to a completion request: unknown model or address."""
    if "model" in (refusal.message + refusal.code).lower():
        return no_such_model(url, model, str(refusal))
    return ConfigError(
        f"{url}/chat/completions answers {refusal}; {address_hint(url)} (--base-url, "
        "coding.evaluation.base_url)"
    )


def no_such_model(url: str, model: str, detail: str) -> ConfigError:
    """Return the error for a model that the server does not serve."""
    return ConfigError(
        f"{url} does not serve {model}; {detail}; set coding.evaluation.model (--model) to a name that "
        "it serves"
    )


def address_hint(url: str) -> str:
    """Return a hint about an address without an API."""
    if url.endswith("/v1"):
        return "pass the URL of an OpenAI-compatible API, up to and including its version"
    return f"most servers have their API at a URL that ends in /v1: {url}/v1"


def bad_request(
    url: str, model: str, refusal: Refusal, sent: Collection[str], extra: Collection[str]
) -> ConfigError | PromptError:
    """Return the error for HTTP 400, 413 and 422, caused by this prompt or by any such request.

    Args:
        sent: names of the request's fields.
        extra: names of the fields from `extra_body`.
    """
    if "content_filter" in refusal.code or "content_policy" in refusal.code:
        return FilteredError(f"the server's content filter rejects it with {refusal}")
    refused = PromptError(f"the server rejects it with {refusal}")
    if _TOO_LONG.search(refusal.message):
        return refused
    if refusal.code == "model_not_found" or _NO_MODEL.search(refusal.message):
        return no_such_model(url, model, str(refusal))
    field = _field(refusal, sent)
    if field is None and _NO_TEMPLATE.search(refusal.message):
        return ConfigError(
            f"{url}: the chat template of {model} does not work ({refusal}); start the server with "
            "a template file, or pass a model that has one"
        )
    if field is None:
        return refused
    return ConfigError(f"{url} rejects `{field}` ({refusal}); {_way(field, refusal, extra)}")


def _field(refusal: Refusal, sent: Collection[str]) -> str | None:
    """Return the field that the server rejects whatever the prompt, or None."""
    candidates = [name for name in sent if name not in ("model", "messages")]
    if refusal.parameter in candidates:
        return refusal.parameter
    if _BOUND.search(refusal.message):  # a limit on tokens may depend on the prompt
        candidates = [name for name in candidates if name not in _LIMITS]
    elif not _PARAMETER.search(f"{refusal.message} {refusal.code.replace('_', ' ')}"):
        return None
    named = [name for name in candidates if re.search(rf"\b{name}\b", refusal.message)]
    return named[0] if named else None


def _way(field: str, refusal: Refusal, extra: Collection[str]) -> str:
    if field in extra:
        return "correct coding.evaluation.extra_body (--extra-body)"
    if field == "max_tokens" and "max_completion_tokens" in refusal.message:
        return (
            "set coding.evaluation.token_limit_field=max_completion_tokens "
            "(--token-limit-field max_completion_tokens)"
        )
    if field in _LIMITS:
        return "lower coding.evaluation.max_tokens (--max-tokens)"
    if field == "seed":
        return "set coding.evaluation.send_seeds=false (--no-send-seeds)"
    if field in OPTIONAL:
        return f"remove coding.evaluation.{field} (--{field.replace('_', '-')})"
    return (
        f"remove the field with --extra-body '{{\"{field}\": null}}' (coding.evaluation.extra_body)"
    )


# ── probes of ignored options ─────────────────────────────────────────────────────────────────────

MESSAGES: Messages = [{"role": "user", "content": "Write twelve random words."}]
TOKENS = 24
"""Maximum tokens of a probe's answer."""

_PROBES: Mapping[str, tuple[Any, float | None, float | None]] = {
    "top_k": (-7, -1, 1),
    "min_p": (7.0, 0.0, 1.0),
    "presence_penalty": (99.0, 0.0, None),
    "frequency_penalty": (99.0, 0.0, None),
    "repetition_penalty": (-1.0, 1.0, None),
    "stop": ({"no": "text"}, None, None),
    "chat_template_kwargs": ("no object", None, None),
}
"""By option: an impossible value; the value without an effect, which a server may ignore; the value that
allows only the likeliest token, at any temperature."""
_SEEDS = (1, 2, 3)
_REFUSED = (400, 413, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's answer to a probe."""

    status: int
    text: str
    """Reasoning and answer; empty if the probe was rejected."""


Ask = Callable[[Mapping[str, Any]], Awaitable[Reply]]
"""Function that sends a request with these fields, model, messages and token limit only."""


async def probe(ask: Ask, sampling: Sampling, url: str, *, draws: bool) -> list[str]:
    """Find the options that a server ignores. Sends nothing if no option has an effect.

    Args:
        url: the server's URL, for messages.
        draws: the server accepts a temperature, which the second probe needs.

    Returns:
        Notes on options that the server may ignore.

    Raises:
        ConfigError: the server ignores an option; names it.
    """
    notes = []
    for name, value in sampling.optional().items():
        impossible, off, single = _PROBES[name]
        if value == off or (await ask({name: impossible})).status in _REFUSED:
            continue
        reads = await _reads(ask, {name: single}) if draws and single is not None else None
        if reads is False:
            raise ConfigError(
                f"{url} ignores `{name}`: three answers differ at {name}={single}, which "
                f"allows one; remove it (coding.evaluation.{name}, --{name.replace('_', '-')}), or "
                "use a server that supports it"
            )
        if reads is None:
            notes.append(
                f"{url} may ignore `{name}`: it accepts the invalid value {name}={impossible!r}"
            )
    return notes


async def _reads(ask: Ask, single: Mapping[str, float]) -> bool | None:
    """Return whether the option has an effect, or None if the answers do not show it.

    Args:
        single: the option at a value that allows only the likeliest token.
    """
    hot = {"temperature": 2.0, "top_p": 1.0}
    free = {(await ask({**hot, "seed": seed})).text for seed in _SEEDS}
    bound = {(await ask({**hot, **single, "seed": seed})).text for seed in _SEEDS}
    if len(bound) == len(_SEEDS):  # all differ: more than a tie of rounded sums
        return False
    return True if len(bound) == 1 and len(free) > 1 else None
