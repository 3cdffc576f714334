"""OpenAI's Responses, without state: a request has its whole conversation as items.

reasoning, message and calls in a row   one message of the assistant
instructions and leading developers     one system message
namespaces                              functions named NAMESPACE__NAME
custom tools                            functions of one text
tools that OpenAI hosts                 left out: the policy has the client's tools only
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from coding_model_project import strict_json
from coding_model_project.episodes.tool_calls import ToolCall
from coding_model_project.harbor.gateway import requests
from coding_model_project.harbor.gateway.requests import Answer, Call, Message, Reading, wrong

_ROLES = {name: name for name in ("system", "user", "assistant")} | {"developer": "system"}
_REFUSED = {
    "nothing is stored; send the whole input": "previous_response_id conversation prompt",
    "wait for the reply": "background",
    "log-probabilities are recorded for training only": "top_logprobs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """A tool of the client behind the name that the model sees."""

    name: str
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses(requests.Exchange):
    """See `requests.Exchange`."""

    tools: Mapping[str, _Tool]
    created: int = field(default_factory=lambda: int(time.time()))
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Of a stream's events."""

    @classmethod
    def read(cls, body: bytes) -> Responses:
        reading = Reading(body)
        reading.refuse(_REFUSED)
        text = reading.given.get("text")
        reading.text_only(text.get("format") if isinstance(text, dict) else None, "text.format")
        tools, names = _tools(reading, reading.get("tools") or [], "tools")
        stream = reading.flag("stream")
        ask = reading.ask(
            _messages(reading),
            tools=tuple(tools),
            calls_tools=reading.calls_tools(reading.get("tool_choice")),
            one_call=reading.get("parallel_tool_calls") is False,
            max_tokens=reading.whole_number("max_output_tokens"),
        )
        return cls(ask=ask, stream=stream, tools=names, id=_id("resp"))

    def whole(self, answer: Answer) -> dict[str, Any]:
        n, made = answer.prompt_tokens, answer.completion_tokens
        usage = {"input_tokens": n, "output_tokens": made, "total_tokens": n + made}
        usage |= {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
        usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
        status = _status(answer)
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        items = self._items(answer)
        return self._response(status, output=items, usage=usage, incomplete_details=cut)

    def begin(self, prompt_tokens: int) -> Iterator[str]:
        yield self._event("created", response=self._response("in_progress"))
        yield self.waiting()

    def waiting(self) -> str:
        # Some clients count events, and no comments.
        return self._event("in_progress", response=self._response("in_progress"))

    def rest(self, answer: Answer) -> Iterator[str]:
        whole = self.whole(answer)
        for index, item in enumerate(whole["output"]):
            empty = {name: type(item[name])() for name in _FILLED if name in item}
            added = {**item, **empty, "status": "in_progress"}
            yield self._event("output_item.added", output_index=index, item=added)
            yield from self._parts(item, {"item_id": item["id"], "output_index": index})
            yield self._event("output_item.done", output_index=index, item=item)
        yield self._event(whole["status"], response=whole)

    def failed(self, error: requests.RequestError) -> str:
        why = {"code": error.code or "server_error", "message": str(error)}
        return self._event("failed", response=self._response("failed", error=why))

    def _items(self, answer: Answer) -> list[dict[str, Any]]:
        status = {"status": _status(answer)}
        items: list[dict[str, Any]] = []
        if answer.thought:
            content = [{"type": "reasoning_text", "text": answer.thought}]
            thought = {"type": "reasoning", "id": _id("rs"), "summary": [], "content": content}
            items.append(thought | status)
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            said = {"type": "message", "id": _id("msg"), "role": "assistant", "content": content}
            items.append(said | status)
        return items + [self._call(call) | status for call in answer.calls]

    def _call(self, call: Call) -> dict[str, Any]:
        tool = self.tools.get(call.name, _Tool(name=call.name))
        made = {"id": _id("fc"), "call_id": call.id, "name": tool.name}
        made |= {"namespace": tool.namespace} if tool.namespace else {}
        if tool.custom:
            return {"type": "custom_tool_call", **made, "input": _custom_input(call.arguments)}
        return {"type": "function_call", **made, "arguments": call.arguments}

    def _parts(self, item: Mapping[str, Any], at: Mapping[str, Any]) -> Iterator[str]:
        if item["type"] in ("message", "reasoning"):
            (part,) = item["content"]
            name, text, at = part["type"], part["text"], {**at, "content_index": 0}
            logged = {"logprobs": []} if name == "output_text" else {}
            yield self._event("content_part.added", **at, part={**part, "text": ""})
            yield self._event(f"{name}.delta", **at, delta=text, **logged)
            yield self._event(f"{name}.done", **at, text=text, **logged)
            yield self._event("content_part.done", **at, part=part)
            return
        field = "arguments" if "arguments" in item else "input"
        name = "function_call_arguments" if field == "arguments" else "custom_tool_call_input"
        yield self._event(f"{name}.delta", **at, delta=item[field])
        yield self._event(f"{name}.done", **at, name=item["name"], **{field: item[field]})

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        head = {"id": self.id, "object": "response", "created_at": self.created}
        choice = "auto" if self.ask.calls_tools else "none"
        asked = {"tools": [], "tool_choice": choice, "parallel_tool_calls": not self.ask.one_call}
        nothing = {"output": [], "usage": None, "error": None, "incomplete_details": None}
        return {**head, "model": requests.MODEL, "status": status, **asked, **nothing, **fields}

    def _event(self, kind: str, **fields: Any) -> str:
        n = next(self.numbers)
        return requests.event(type=f"response.{kind}", sequence_number=n, **fields)


_FILLED = ("content", "arguments", "input")
"""Fields of an item that a stream fills."""


def _status(answer: Answer) -> str:
    return "incomplete" if answer.ended is requests.Ended.length else "completed"


def _id(kind: str) -> str:
    return f"{kind}_{uuid4().hex}"


# ── items ─────────────────────────────────────────────────────────────────────────────────────────


def _messages(reading: Reading) -> list[Message]:
    messages: list[Message] = []
    if instructions := reading.get("instructions"):
        text = requests.text_of(instructions, "instructions")
        messages.append({"role": "system", "content": text})
    given = reading.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    for at, item in enumerate(requests.items_of(given, "input")):
        _add(reading, messages, item, f"input[{at}]")
    return messages


def _add(reading: Reading, messages: list[Message], item: Mapping[str, Any], where: str) -> None:
    """Add an item to the messages, or to the last one if they belong together."""

    def text(name: str) -> str:
        return requests.text_of(item.get(name), f"{where}.{name}")

    def add_call(arguments: str) -> None:
        space, name = item.get("namespace"), text("name")
        name = _flat(text("namespace"), name) if space else name
        call = ToolCall(name=name, arguments=arguments)
        message = requests.assistant_at_end(messages)
        message.setdefault("tool_calls", []).append(call.openai(text("call_id")))

    match item.get("type", "message"):
        case "message":
            role = item.get("role")
            if not isinstance(role, str) or role not in _ROLES:
                raise wrong(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
            said = reading.content(item.get("content"), f"{where}.content")
            if role == "assistant":
                requests.join(requests.assistant_at_end(messages), "content", said)
            elif _ROLES[role] == "system" and [one["role"] for one in messages] == ["system"]:
                requests.join(messages[0], "content", said)
            else:
                messages.append({"role": _ROLES[role], "content": said})
        case "reasoning":
            given = item.get("content") or item.get("summary") or []
            thought = reading.content(given, f"{where}.content")
            requests.join(requests.assistant_at_end(messages), "reasoning_content", thought)
        case "function_call":
            add_call(text("arguments"))
        case "custom_tool_call":
            add_call(json.dumps({"input": text("input")}, ensure_ascii=False))
        case "function_call_output" | "custom_tool_call_output":
            said = reading.content(item.get("output"), f"{where}.output")
            messages.append({"role": "tool", "tool_call_id": text("call_id"), "content": said})
        case kind:
            raise wrong(f"{where}.type", f"{kind!r:.60}: nothing is stored; set store=false")


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────


def _tools(
    reading: Reading, given: Any, where: str, namespace: str | None = None
) -> tuple[list[dict[str, Any]], dict[str, _Tool]]:
    """Return tools as the model sees them, and the client's behind each name."""
    tools: list[dict[str, Any]] = []
    names: dict[str, _Tool] = {}
    for at, tool in enumerate(requests.items_of(given, where)):
        here, kind = f"{where}[{at}]", tool.get("type")
        if kind not in ("function", "custom", "namespace"):
            reading.ignored.add(f"tools.{kind!s:.40}")
            continue
        name = requests.text_of(tool.get("name"), f"{here}.name")
        if kind == "namespace":
            more, behind = _tools(reading, tool.get("tools"), f"{here}.tools", name)
            tools += more
            names |= behind
            continue
        custom = kind == "custom"
        parameters = _custom_parameters(tool) if custom else tool.get("parameters")
        flat = _flat(namespace, name) if namespace else name
        tools.append(requests.function_tool(flat, tool.get("description"), parameters))
        names[flat] = _Tool(name=name, namespace=namespace, custom=custom)
    return tools, names


def _flat(namespace: str, name: str) -> str:
    return f"{namespace}__{name}"


def _custom_parameters(tool: Mapping[str, Any]) -> dict[str, Any]:
    form = tool.get("format")
    grammar = form.get("definition") if isinstance(form, dict) else None
    text = {"type": "string"} | ({"description": grammar} if isinstance(grammar, str) else {})
    return {"type": "object", "properties": {"input": text}, "required": ["input"]}


def _custom_input(arguments: str) -> str:
    """Return the text for a custom tool: all that the model wrote if it is not in its place."""
    try:
        given = strict_json.loads(arguments)
    except ValueError:
        return arguments
    text = given.get("input") if isinstance(given, dict) else given
    return text if isinstance(text, str) else arguments
