"""Tool calls as text: the form that Hermes and Qwen models write, and our one tool, `bash`.

    Let me look.
    <tool_call>
    {"name": "bash", "arguments": {"command": "ls"}}
    </tool_call>

`parse` splits a reply into text and calls. It never fails: text that is not a complete, well-formed call
stays content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from coding_model_project import strict_json
from coding_model_project.strict_json import encodable

OPEN, CLOSE = "<tool_call>", "</tool_call>"
"""The marks around a model's call."""
RESPONSE_OPEN, RESPONSE_CLOSE = "<tool_response>", "</tool_response>"
"""The marks around a message of role `tool` in chat templates that show it as the user's."""
TOOLS_OPEN, TOOLS_CLOSE = "<tools>", "</tools>"
"""The marks around the tools' schemas in a system message."""
MARKS = (OPEN, CLOSE, RESPONSE_OPEN, RESPONSE_CLOSE, TOOLS_OPEN, TOOLS_CLOSE)

BASH = "bash"
BASH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": BASH,
        "description": "Run a command in a new shell.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
"""The bash agent's tool, in the form of `tools` for chat templates and OpenAI-compatible servers."""

_THOUGHT_OPEN, _THOUGHT_CLOSE = "<think>", "</think>"
_MALFORMED = 64
"""Most malformed calls; then the rest of a reply is content. Each costs a scan of the text."""
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool."""

    name: str
    arguments: str
    """JSON text, possibly invalid or not an object: see `bash_command`."""

    def openai(self, id: str) -> dict[str, Any]:
        """Return the call as an entry of a message's `tool_calls`."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": id, "type": "function", "function": function}

    def text(self) -> str:
        """Return the call in the form that `parse` reads."""
        return f'{OPEN}\n{{"name": {_json(self.name)}, "arguments": {self.arguments}}}\n{CLOSE}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """A reply split into content and calls."""

    content: str | None
    """The text outside of calls, without space around it; None if there is none."""
    calls: tuple[ToolCall, ...]
    """The calls, in the reply's order."""


class ArgumentsError(ValueError):
    """A call of another tool than `bash`, or without a command in its arguments."""


def parse(text: str) -> ParsedReply:
    """Split a reply into content and calls, in time linear in its length.

    A call is `<tool_call>`, a JSON object with a `name`, and `</tool_call>`. `arguments` may be any JSON
    value; a string is read as JSON text, and the default is `{}`. A call that is malformed, not closed,
    or inside a thought (`<think>…</think>`) stays content.
    """
    calls: list[ToolCall] = []
    outside: list[str] = []
    kept = _end_of_thought(text)
    outside.append(text[:kept])
    for opened, call, at in _calls(text, kept):
        calls.append(call)
        outside.append(text[kept:opened])
        kept = at
    outside.append(text[kept:])
    content = "\n".join(stripped for part in outside if (stripped := part.strip()))
    return ParsedReply(content=content or None, calls=tuple(calls))


def split_thought(text: str) -> tuple[str, str]:
    """Return a reply's thought, without its marks and the space around it, and the text after it."""
    end = _end_of_thought(text)
    thought = text[:end].strip().removeprefix(_THOUGHT_OPEN).removesuffix(_THOUGHT_CLOSE)
    return thought.strip(), text[end:]


def bash_command(call: ToolCall) -> str:
    """Return the command of a call of `bash`.

    Raises:
        ArgumentsError: the call is invalid; the message tells the model why, on one line.
    """
    if call.name != BASH:
        raise ArgumentsError(f"no tool {call.name!r:.80}; the only one is {BASH}")
    try:
        arguments = strict_json.loads(call.arguments)
    except ValueError as error:
        raise ArgumentsError(f"arguments are not JSON: {error!s:.80}") from None
    command = arguments.get("command") if isinstance(arguments, dict) else None
    if not isinstance(command, str) or not command.strip():
        raise ArgumentsError('arguments must be {"command": "…"}')
    return command


def bash_call(command: str) -> ToolCall:
    """Return a call of `bash` with this command."""
    return ToolCall(name=BASH, arguments=f'{{"command": {_json(command)}}}')


def for_template(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in chat templates' form: arguments of calls as objects, content as text.

    Servers use JSON text for arguments, which templates would quote again. Text that is not a JSON object
    is unchanged.
    """
    return [_for_template(message) for message in messages]


def object_text(arguments: str) -> str:
    """Return a JSON object's text unchanged, and any other text as `{"invalid": text}`."""
    value = _value({"arguments": arguments})
    return arguments if isinstance(value, dict) else f'{{"invalid": {_json(arguments)}}}'


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(message)
    if shown.get("content") is None:
        shown["content"] = ""
    if calls := shown.get("tool_calls"):
        shown["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _value(call["function"])}}
            for call in calls
        ]
    return shown


def _value(function: Mapping[str, Any]) -> Any:
    arguments = function["arguments"]
    try:
        value = strict_json.loads(arguments)
    except (TypeError, ValueError, AttributeError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _end_of_thought(text: str) -> int:
    """Return the end of a reply's thought, 0 if it has none. A truncated thought is the whole reply.

    Some templates open the thought, so only its end is in the reply.
    """
    closed = text.find(_THOUGHT_CLOSE)
    if text.lstrip().startswith(_THOUGHT_OPEN):
        return len(text) if closed < 0 else closed + len(_THOUGHT_CLOSE)
    if closed < 0 or _is_within_call(text, closed):
        return 0
    return closed + len(_THOUGHT_CLOSE)


def _is_within_call(text: str, at: int) -> bool:
    """Return whether a position is in a well-formed call, as in a command with `</think>`."""
    calls = takewhile(lambda found: found[0] < at, _calls(text, 0))
    return any(end > at for _, _, end in calls)


def _calls(text: str, at: int) -> Iterator[tuple[int, ToolCall, int]]:
    """Yield each well-formed call from a position on, with its start and its end."""
    malformed = 0
    while malformed < _MALFORMED and (opened := text.find(OPEN, at)) >= 0:
        found = _call(text, opened + len(OPEN))
        if found is None:
            malformed += 1
            at = opened + len(OPEN)
            continue
        call, at = found
        yield opened, call, at


def _call(text: str, at: int) -> tuple[ToolCall, int] | None:
    """Return the call whose object starts at `at`, and the end of its closing mark; None if invalid."""
    try:
        fields, at = _decoder.raw_decode(text, _skip(text, at))
        strict_json.shallow(fields)
    except (ValueError, RecursionError):
        return None
    at = _skip(text, at)
    name = fields.get("name") if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name.strip() or not text.startswith(CLOSE, at):
        return None
    arguments = fields.get("arguments", {})
    written = arguments if isinstance(arguments, str) else _json(arguments)
    return ToolCall(name=encodable(name), arguments=encodable(written)), at + len(CLOSE)


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_decoder = json.JSONDecoder(parse_constant=_no_constant)
