"""OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from coding_model_project.episodes.tool_calls import ToolCall
from coding_model_project.harbor.gateway import requests
from coding_model_project.harbor.gateway.requests import MODEL, Answer, Ended, Reading, wrong

_ROLES = {name: name for name in ("system", "user", "assistant", "tool")} | {"developer": "system"}
_REFUSED = {
    "log-probabilities are recorded for training only": "logprobs top_logprobs",
    "use tools": "functions function_call",
    "the model reads and writes text": "audio",
    "set data.apply_chat_template_kwargs for the whole training": "chat_template_kwargs",
    "the training's template is used": "chat_template",
    "a reply has the policy's own tokens": "prediction continue_final_message",
    "the model has the client's tools only": "web_search_options",
    "the policy samples freely": "logit_bias structured_outputs guided_json guided_regex "
    "guided_choice guided_grammar",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(requests.Exchange):
    """See `requests.Exchange`."""

    usage: bool
    """True if a stream ends with a usage chunk."""

    @classmethod
    def read(cls, body: bytes) -> Chat:
        reading = Reading(body)
        if reading.get("n") not in (None, 1):
            raise wrong("n", "must be 1: each sample has its own agent")
        if reading.get("modalities") not in (None, ["text"]):
            raise wrong("modalities", "is not supported: the model reads and writes text")
        reading.refuse(_REFUSED)
        reading.text_only(reading.get("response_format"), "response_format")
        given = requests.items_of(reading.get("messages"), "messages")
        messages = [_message(reading, one, f"messages[{at}]") for at, one in enumerate(given)]
        options = reading.get("stream_options")
        usage = isinstance(options, dict) and options.get("include_usage") is True
        stream = reading.flag("stream")
        ask = reading.ask(
            messages,
            tools=_tools(reading.get("tools")),
            calls_tools=reading.calls_tools(reading.get("tool_choice")),
            one_call=reading.get("parallel_tool_calls") is False,
            max_tokens=reading.whole_number("max_completion_tokens", "max_tokens"),
            stop=reading.stops("stop"),
        )
        return cls(ask=ask, stream=stream, usage=usage, id=f"chatcmpl-{uuid4().hex}")

    def whole(self, answer: Answer) -> dict[str, Any]:
        choice = _choice(_finish_reason(answer), message=answer.message)
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(answer)}

    def begin(self, prompt_tokens: int) -> Iterator[str]:
        yield self._chunk({"role": "assistant", "content": ""})

    def rest(self, answer: Answer) -> Iterator[str]:
        # A text is one chunk, because the policy replies in one piece.
        message = answer.message
        for name in ("reasoning_content", "content"):
            if message.get(name):
                yield self._chunk({name: message[name]})
        for index, call in enumerate(message.get("tool_calls", ())):
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        yield self._chunk({}, _finish_reason(answer))
        if self.usage:
            head = self._head("chat.completion.chunk")
            yield requests.event(**head, choices=[], usage=_usage(answer))
        yield "data: [DONE]\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": int(time.time()), "model": MODEL}

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> str:
        choices = [_choice(finish_reason, delta=delta)]
        return requests.event(**self._head("chat.completion.chunk"), choices=choices)


def _message(reading: Reading, given: Mapping[str, Any], where: str) -> requests.Message:
    role = given.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise wrong(f"{where}.role", f"must be one of {', '.join(_ROLES)}, not {role!r:.60}")
    message: requests.Message = {"role": _ROLES[role]}
    calls, content = given.get("tool_calls") or [], given.get("content")
    if role == "assistant":
        content = "" if content is None else content
        if calls:
            message["tool_calls"] = _calls(calls, f"{where}.tool_calls")
        if thought := given.get("reasoning_content") or given.get("reasoning"):
            text = requests.text_of(thought, f"{where}.reasoning_content")
            message["reasoning_content"] = text
    elif calls:
        raise wrong(f"{where}.tool_calls", f"is allowed for role assistant only, not {role}")
    message["content"] = reading.content(content, f"{where}.content")
    for name in ("tool_call_id", "name"):
        if given.get(name) is not None:
            message[name] = requests.text_of(given[name], f"{where}.{name}")
    return message


def _calls(given: Any, where: str) -> list[dict[str, Any]]:
    calls = []
    for at, one in enumerate(requests.items_of(given, where)):
        here, function = f"{where}[{at}].function", one.get("function")
        if not isinstance(function, dict):
            raise wrong(here, "must have a name and arguments")
        name = requests.text_of(function.get("name"), f"{here}.name")
        arguments = requests.text_of(function.get("arguments", "{}"), f"{here}.arguments")
        call = ToolCall(name=name, arguments=arguments)
        calls.append(call.openai(str(one.get("id") or "")))
    return calls


def _tools(given: Any) -> tuple[Mapping[str, Any], ...]:
    tools = requests.items_of(given or [], "tools")
    for at, tool in enumerate(tools):
        function = tool.get("function")
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise wrong(f"tools[{at}]", 'must be {"type": "function", "function": {…}}')
        requests.text_of(function.get("name"), f"tools[{at}].function.name")
    return tuple(tools)


def _choice(finish_reason: str | None, **said: Any) -> dict[str, Any]:
    return {"index": 0, **said, "finish_reason": finish_reason, "logprobs": None}


def _finish_reason(answer: Answer) -> str:
    if answer.ended is Ended.length:
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    n, made = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": n, "completion_tokens": made, "total_tokens": n + made}
