"""Clients' chat-completion requests: validation, supported options, and equality of conversations.

Only the sampling options `max_tokens` and `stop` apply; the training sets the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coding_model_project import strict_json

Message = dict[str, Any]
"""A message with text content, and `tool_calls`, `tool_call_id` or `name` if it has them."""

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_MOST_STOPS = 16
_DIGEST_BYTES = 16


class RequestError(Exception):
    """A rejected request, as the client receives it.

    Args:
        message: one line.
        code: OpenAI's error code, if there is one.
        param: the invalid field of the request.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.code, self.param = status, kind, code, param

    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's format."""
        error = {
            "message": str(self),
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A valid request for one reply."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    calls_tools: bool = True
    """True if tool calls in the reply are parsed (`tool_choice` is not "none")."""
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    """True if a stream ends with a usage chunk."""


def read_ask(body: bytes) -> Ask:
    """Read the body of a request to /v1/chat/completions.

    Raises:
        RequestError: it is malformed, or uses an unsupported option.
    """
    given = read_object(body)
    choice = given.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise _wrong("tool_choice", 'must be "auto" or "none": the model decides')
    _refuse_unsupported(given)
    options = given.get("stream_options") or {}
    return Ask(
        messages=_messages(given.get("messages")),
        tools=_tools(given.get("tools")),
        calls_tools=choice != "none",
        max_tokens=_max_tokens(given),
        stop=_stops(given.get("stop")),
        stream=_flag(given, "stream"),
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def read_object(body: bytes) -> dict[str, Any]:
    """Read a request's JSON object.

    Raises:
        RequestError: it is not a JSON object.
    """
    try:
        given = strict_json.loads(body)
    except ValueError as error:
        raise RequestError(f"the request is not JSON that can be used: {error!s:.200}") from error
    if not isinstance(given, dict):
        raise RequestError("the request is not a JSON object")
    return given


def _refuse_unsupported(given: Mapping[str, Any]) -> None:
    if given.get("n") not in (None, 1):
        raise _wrong("n", "must be 1: each sample has its own agent")
    if given.get("logprobs") or given.get("top_logprobs"):
        raise _wrong(
            "logprobs", "is not supported: log-probabilities are recorded for training only"
        )
    form = given.get("response_format")
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise _wrong("response_format", 'must be {"type": "text"}')
    for name in ("functions", "function_call"):
        if given.get(name):
            raise _wrong(name, "is not supported: use tools")
    for name in ("audio", "modalities"):
        if given.get(name) not in (None, ["text"]):
            raise _wrong(name, "is not supported: the model reads and writes text")


# ── messages ──────────────────────────────────────────────────────────────────────────────────────


def _messages(given: Any) -> tuple[Message, ...]:
    if not isinstance(given, list) or not given:
        raise _wrong("messages", "must be a list of at least one message")
    messages = tuple(_message(one, f"messages[{at}]") for at, one in enumerate(given))
    if messages[-1]["role"] == "assistant":
        raise _wrong(f"messages[{len(messages) - 1}]", "must not have the role assistant")
    return messages


def _message(given: Any, where: str) -> Message:
    if not isinstance(given, dict):
        raise _wrong(where, "must be an object with role and content")
    role = given.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(_ROLES)
        raise _wrong(f"{where}.role", f"must be one of {known}, not {role!r:.60}")
    message: Message = {"role": _ROLES[role]}
    calls = given.get("tool_calls") or []
    if role == "assistant" and calls:
        message["tool_calls"] = _calls(calls, f"{where}.tool_calls")
    elif calls:
        raise _wrong(f"{where}.tool_calls", f"is allowed for role assistant only, not {role}")
    optional = role == "assistant"
    message["content"] = _content(given.get("content"), f"{where}.content", optional=optional)
    for name in ("tool_call_id", "name"):
        if given.get(name) is not None:
            message[name] = _text(given[name], f"{where}.{name}")
    return message


def _content(given: Any, where: str, *, optional: bool) -> str:
    if given is None and optional:
        return ""
    if isinstance(given, str):
        return _text(given, where)
    if not isinstance(given, list):
        raise _wrong(where, "must be text, or a list of parts of type text")
    texts = []
    for at, part in enumerate(given):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise RequestError(
                f"{where}[{at}].type must be text, not {kind!r:.60}: the model reads text only",
                code="unsupported_content",
                param=f"{where}[{at}].type",
            )
        texts.append(_text(part.get("text"), f"{where}[{at}].text"))
    return "\n".join(texts)


def _calls(given: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise _wrong(where, "must be a list of calls")
    calls = []
    for at, one in enumerate(given):
        function = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict):
            raise _wrong(f"{where}[{at}]", "must be a function call with name and arguments")
        calls.append(
            {
                "id": str(one.get("id") or ""),
                "type": "function",
                "function": {
                    "name": _text(function.get("name"), f"{where}[{at}].function.name"),
                    "arguments": _text(
                        function.get("arguments", "{}"), f"{where}[{at}].function.arguments"
                    ),
                },
            }
        )
    return calls


def _text(given: Any, where: str) -> str:
    if not isinstance(given, str):
        raise _wrong(where, "must be text")
    return given


# ── options ───────────────────────────────────────────────────────────────────────────────────────


def _tools(given: Any) -> tuple[Mapping[str, Any], ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise _wrong("tools", "must be a list of functions")
    for at, tool in enumerate(given):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise _wrong(f"tools[{at}]", 'must be {"type": "function", "function": {…}}')
        _text(function.get("name"), f"tools[{at}].function.name")
    return tuple(given)


def _max_tokens(given: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = given.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise _wrong(name, "must be a whole number above 0")
        return value
    return None


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given
    if stops is None:
        return ()
    whole = isinstance(stops, list) and all(isinstance(one, str) and one for one in stops)
    if not whole or len(stops) > _MOST_STOPS:
        raise _wrong("stop", f"must be a text, or a list of at most {_MOST_STOPS} texts")
    return tuple(_text(one, "stop") for one in stops)


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name)
    if value not in (None, True, False):
        raise _wrong(name, "must be true or false")
    return bool(value)


def _wrong(param: str, problem: str) -> RequestError:
    return RequestError(f"{param} {problem}", param=param)


# ── equality ──────────────────────────────────────────────────────────────────────────────────────


def digests(tools: Sequence[Mapping[str, Any]], messages: Iterable[Message]) -> list[bytes]:
    """Return a digest of the tools, then one for each prefix of the conversation.

    Conversations that a model cannot tell apart have equal digests: call ids, the order of keys in
    arguments, and space around an assistant's text make no difference.
    """
    found = [_digest(b"", [json.dumps(tool, sort_keys=True) for tool in tools])]
    for message in messages:
        found.append(_digest(found[-1], _identity(message)))
    return found


def _identity(message: Message) -> list[Any]:
    role, content = message["role"], message.get("content") or ""
    if role != "assistant":
        return [role, content]
    functions = [call["function"] for call in message.get("tool_calls", ())]
    calls = [[one["name"], _same_json(one["arguments"])] for one in functions]
    return [role, content.strip(), calls]


def _same_json(text: str) -> str:
    try:
        return json.dumps(strict_json.loads(text), sort_keys=True)
    except ValueError:
        return text.strip()


def _digest(before: bytes, what: list[Any]) -> bytes:
    return hashlib.blake2b(before + json.dumps(what).encode(), digest_size=_DIGEST_BYTES).digest()
