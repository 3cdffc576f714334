"""What a server of OpenAI's chat completions says when it refuses, as one of our errors.

Servers differ: OpenAI's own, vLLM's and FastAPI's forms of an error are read, and plain text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from coding_model_project.errors import ConfigError, PromptError
from coding_model_project.evaluation.backends.generation import OPTIONAL

_TOO_LONG = re.compile(r"context (length|window|size)|too long|prompt is too large", re.IGNORECASE)
_NO_MODEL = re.compile(r"model\b.*\b(not (exist|found)|unknown|not supported)", re.IGNORECASE)
_NO_TEMPLATE = re.compile(r"chat.template\b(?!_kwargs)", re.IGNORECASE)
_PARAMETER = re.compile(
    r"(unsupported|unrecognized|unknown|unexpected|invalid|extra)\W+(\w+\W+){0,3}?"
    r"(parameter|argument|field|input|value|key)|not (supported|permitted|allowed)|is too large",
    re.IGNORECASE,
)
_SHOWN = 200
"""Characters of a server's own words in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error as a server tells it."""

    status: int
    message: str
    parameter: str | None = None
    """Of the request, if it names one."""
    code: str = ""

    @classmethod
    def of(cls, response: httpx.Response) -> Refusal:
        """Read a response that is not a success."""
        try:
            content = orjson.loads(response.content)
        except ValueError:
            content = {}
        said: Any = content
        if isinstance(content, dict):
            said = content.get("error") or content.get("detail") or content
        parameter, code = None, ""
        if isinstance(said, list) and said and isinstance(said[0], dict):  # FastAPI's
            place = [str(part) for part in said[0].get("loc") or ()]
            parameter = place[1] if place[:1] == ["body"] and len(place) > 1 else None
            code, said = str(said[0].get("type") or ""), f"{'.'.join(place)}: {said[0].get('msg')}"
        elif isinstance(said, dict):
            parameter = re.split(r"[.\[]", str(said.get("param") or ""))[0] or None
            code = str(said.get("code") or "")
            said = said.get("message")
        text = said if isinstance(said, str) and said else response.text
        if text.lstrip().startswith("<"):
            text = "a web page"
        return cls(
            status=response.status_code,
            message=" ".join(text.split())[:_SHOWN],
            parameter=parameter,
            code=code,
        )

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.message}"


def no_entry(url: str, refusal: Refusal, variable: str, *, has_key: bool) -> ConfigError:
    """An HTTP 401 or 403."""
    way = (
        f"the server does not accept the key in the environment variable {variable}"
        if has_key
        else f"set the environment variable {variable} to a key that the server accepts"
    )
    return ConfigError(
        f"{url} answers {refusal}; {way} (--api-key-env, coding.evaluation.api_key_env)"
    )


def not_found(url: str, model: str, refusal: Refusal) -> ConfigError:
    """An HTTP 404 or 405 to a request for a completion: no such model, or no such address."""
    if "model" in (refusal.message + refusal.code).lower():
        return no_such_model(url, model, str(refusal))
    return ConfigError(
        f"{url}/chat/completions answers {refusal}; {address_hint(url)} (--base-url, "
        "coding.evaluation.base_url)"
    )


def no_such_model(url: str, model: str, said: str) -> ConfigError:
    """The server does not know the model."""
    return ConfigError(
        f"{url} does not serve {model}; {said}; set coding.evaluation.model (--model) to a name that "
        "it serves"
    )


def address_hint(url: str) -> str:
    """What may be wrong with an address where no API is found."""
    if url.endswith("/v1"):
        return "give the address of an OpenAI-compatible API, up to and with its version"
    return f"most servers have their API at an address that ends in /v1: {url}/v1"


def bad_request(
    url: str, model: str, refusal: Refusal, sent: Collection[str], extra: Collection[str]
) -> ConfigError | PromptError:
    """An HTTP 400, 413 or 422: this prompt is at fault, or all requests like it.

    Args:
        sent: names of the fields of the request.
        extra: those of them that `extra_body` brought.
    """
    refused = PromptError(f"the server refuses it with {refusal}")
    if _TOO_LONG.search(refusal.message):
        return refused
    if refusal.code == "model_not_found" or _NO_MODEL.search(refusal.message):
        return no_such_model(url, model, str(refusal))
    field = _field(refusal, sent)
    if field is None and _NO_TEMPLATE.search(refusal.message):
        return ConfigError(
            f"{url}: the chat template of {model} does not work ({refusal}); start the server with "
            "the file of a template, or choose a model that has one"
        )
    if field is None:
        return refused
    return ConfigError(f"{url} refuses `{field}` ({refusal}); {_way(field, refusal, extra)}")


def _field(refusal: Refusal, sent: Collection[str]) -> str | None:
    """The field that is refused whatever the prompt; None if no field is."""
    candidates = [name for name in sent if name not in ("model", "messages")]
    if refusal.parameter in candidates:
        return refusal.parameter
    if not _PARAMETER.search(f"{refusal.message} {refusal.code.replace('_', ' ')}"):
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
    if field in ("max_tokens", "max_completion_tokens"):
        return "lower coding.evaluation.max_tokens (--max-tokens)"
    if field == "seed":
        return "set coding.evaluation.send_seeds=false (--no-send-seeds)"
    if field in OPTIONAL:
        return f"remove coding.evaluation.{field} (--{field.replace('_', '-')})"
    return (
        f"leave the field out with --extra-body '{{\"{field}\": null}}' "
        "(coding.evaluation.extra_body)"
    )
