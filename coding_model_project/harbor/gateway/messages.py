"""Anthropic's Messages.

system, and a message of this role      system messages
thinking, text and tool_use             one message of the assistant
tool_result                             a message of the role tool; the text beside it is a user's
tools without an input_schema           left out: the policy has the client's tools only
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from coding_model_project.episodes.tool_calls import ToolCall, object_text
from coding_model_project.harbor.gateway import requests
from coding_model_project.harbor.gateway.requests import Answer, Message, Reading, wrong

_BILLING = "x-anthropic-billing-header"
"""The beginning of a block of Claude Code's that differs in each request."""
_REFUSED = {
    "a reply begins with the policy's own tokens": "prefill",
    "the model has the client's tools only": "mcp_servers container",
}
_KINDS = {403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
_KINDS |= {500: "api_error", 503: "overloaded_error"}
"""Types of errors whose name differs from OpenAI's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages(requests.Exchange):
    """See `requests.Exchange`."""

    @classmethod
    def read(cls, body: bytes) -> Messages:
        reading = Reading(body)
        reading.refuse(_REFUSED)
        choice = reading.get("tool_choice") or {"type": None}
        kind = choice.get("type") if isinstance(choice, dict) else choice
        output = reading.given.get("output_config")
        if reading.get("output_format") or (isinstance(output, dict) and output.get("format")):
            reading.ignored.add("output_config.format")
        stream = reading.flag("stream")
        ask = reading.ask(
            _messages(reading),
            tools=_tools(reading),
            calls_tools=reading.calls_tools(kind),
            one_call=isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True,
            max_tokens=reading.whole_number("max_tokens"),
            stop=reading.stops("stop_sequences"),
        )
        return cls(ask=ask, stream=stream, id=f"msg_{uuid4().hex}")

    def whole(self, answer: Answer) -> dict[str, Any]:
        ending = {"stop_reason": _stop_reason(answer), "stop_sequence": answer.stopped_at}
        usage = _usage(answer.prompt_tokens, answer.completion_tokens)
        return self._message(content=_blocks(answer), usage=usage, **ending)

    def begin(self, prompt_tokens: int) -> Iterator[str]:
        yield requests.event(
            type="message_start", message=self._message(usage=_usage(prompt_tokens, 0))
        )

    def waiting(self) -> str:
        return requests.event(type="ping")

    def rest(self, answer: Answer) -> Iterator[str]:
        whole = self.whole(answer)
        for index, block in enumerate(whole["content"]):
            empty, deltas = _deltas(block)
            yield requests.event(type="content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield requests.event(type="content_block_delta", index=index, delta=delta)
            yield requests.event(type="content_block_stop", index=index)
        ending = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        yield requests.event(type="message_delta", delta=ending, usage=whole["usage"])
        yield requests.event(type="message_stop")

    def failed(self, error: requests.RequestError) -> str:
        return requests.event(**error_body(error))

    def _message(self, **fields: Any) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "role": "assistant", "model": requests.MODEL}
        return {**head, "content": [], "stop_reason": None, "stop_sequence": None, **fields}


def error_body(error: requests.RequestError) -> dict[str, Any]:
    """Return an error in Anthropic's format."""
    message = str(error)
    if error.tokens is not None:
        n, most = error.tokens
        message = f"prompt is too long: {n} tokens > {most} maximum"
    kind = _KINDS.get(error.status, error.kind)
    return {"type": "error", "error": {"type": kind, "message": message}}


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


def _messages(reading: Reading) -> list[Message]:
    messages: list[Message] = []
    system = reading.get("system")
    if isinstance(system, list):
        texts = ((one, one.get("text") if isinstance(one, dict) else "") for one in system)
        system = [one for one, text in texts if not str(text).startswith(_BILLING)]
    if system:
        messages.append({"role": "system", "content": reading.content(system, "system")})
    for at, one in enumerate(requests.items_of(reading.get("messages"), "messages")):
        where, role, content = f"messages[{at}].content", one.get("role"), one.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = requests.items_of(content, where)
        if role == "assistant":
            _add_assistant(requests.assistant_at_end(messages), blocks, where)
        elif role in ("user", "system"):
            _add_others(reading, messages, role, blocks, where)
        else:
            raise wrong(f"messages[{at}].role", f"must be user or assistant, not {role!r:.60}")
    return messages


def _add_assistant(message: Message, blocks: list[dict[str, Any]], where: str) -> None:
    for at, block in enumerate(blocks):

        def text(name: str, block: Mapping[str, Any] = block, at: int = at) -> str:
            return requests.text_of(block.get(name), f"{where}[{at}].{name}")

        match block.get("type"):
            case "text":
                requests.join(message, "content", text("text"))
            case "thinking":
                requests.join(message, "reasoning_content", text("thinking"))
            case "redacted_thinking":
                pass  # never the policy's
            case "tool_use":
                given = json.dumps(block.get("input") or {}, ensure_ascii=False)
                call = ToolCall(name=text("name"), arguments=given)
                message.setdefault("tool_calls", []).append(call.openai(text("id")))
            case kind:
                raise wrong(f"{where}[{at}].type", f"{kind!r:.60} is not the policy's")


def _add_others(
    reading: Reading, messages: list[Message], role: str, blocks: list[dict[str, Any]], where: str
) -> None:
    for are_results, group in itertools.groupby(
        blocks, lambda one: one.get("type") == "tool_result"
    ):
        if not are_results:
            messages.append({"role": role, "content": reading.content([*group], where)})
            continue
        for block in group:
            id = requests.text_of(block.get("tool_use_id"), f"{where}.tool_use_id")
            text = reading.content(block.get("content") or "", f"{where}.content")
            messages.append({"role": "tool", "tool_call_id": id, "content": text})


def _tools(reading: Reading) -> tuple[Mapping[str, Any], ...]:
    tools = []
    for at, tool in enumerate(requests.items_of(reading.get("tools") or [], "tools")):
        if "input_schema" not in tool:
            reading.ignored.add(f"tools.{tool.get('type')!s:.40}")
            continue
        name, schema = requests.text_of(tool.get("name"), f"tools[{at}].name"), tool["input_schema"]
        tools.append(requests.function_tool(name, tool.get("description"), schema))
    return tuple(tools)


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thought:
        signed = {"type": "thinking", "thinking": answer.thought, "signature": "recorded"}
        blocks.append(signed)
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        given = json.loads(object_text(call.arguments))
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return blocks


def _deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block without its content, and its content."""
    if block["type"] == "tool_use":
        written = json.dumps(block["input"])
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]
    names = [name for name in ("thinking", "signature", "text") if name in block]
    empty = {**block, **dict.fromkeys(names, "")}
    return empty, [{"type": f"{name}_delta", name: block[name]} for name in names]


def _stop_reason(answer: Answer) -> str:
    if answer.ended is requests.Ended.length:
        return "max_tokens"
    if answer.calls:
        return "tool_use"
    return "end_turn" if answer.stopped_at is None else "stop_sequence"


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": prompt_tokens, "output_tokens": completion_tokens, **cached}
