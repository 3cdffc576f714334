"""The messages of a bash agent's episode, in either form of commands.

block   user: instruction → assistant: text with a ```bash block → user: what came of it → …
tools   user: instruction → assistant: `tool_calls` → tool: what came of it → …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from coding_model_project.episodes.tool_calls import BASH_TOOL, ToolCall, object_text
from coding_model_project.grading.prompts import Message


class Calls(StrEnum):
    """The form in which a model gives commands."""

    block = "block"
    """In a block tagged `bash`, in the text of its reply."""
    tools = "tools"
    """In a call of the tool `bash`, as the model's own chat template has it."""

    @property
    def schemas(self) -> list[dict[str, Any]] | None:
        """The `tools` of a conversation in this form."""
        return [BASH_TOOL] if self is Calls.tools else None


INSTRUCTIONS = """\
You do a task in a Linux shell. Answer with one command in a block:

```bash
command
```

It runs in a new shell, and you are told its exit code and output. When the task is done, answer without \
a block."""
TOOL_INSTRUCTIONS = """\
You do a task in a Linux shell. Call bash with one command at a time; you are told its exit code and \
output. When the task is done, answer without a call."""
NOT_RUN = "not run: a reply runs its first call only"
"""The outcome of a reply's second call and any further one."""


def opening(instruction: str, calls: Calls = Calls.block) -> list[Message]:
    """Return the messages that an episode begins with."""
    return [
        {"role": "system", "content": TOOL_INSTRUCTIONS if calls is Calls.tools else INSTRUCTIONS},
        {"role": "user", "content": instruction.strip()},
    ]


def call_id(reply: int, call: int) -> str:
    """Return the id of a reply's call: letters and digits, nine of them, as the strictest servers ask."""
    return f"call{reply % 1000:03}{call % 100:02}"


def said(number: int, text: str, calls: Sequence[ToolCall] = ()) -> Message:
    """Return a reply as a message; its calls have the ids that `outcome` answers.

    Arguments that are no JSON object are wrapped in one, since servers refuse a conversation with them.

    Args:
        number: of the reply in its episode, from 0 on.
    """
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            replace(call, arguments=object_text(call.arguments)).openai(call_id(number, n))
            for n, call in enumerate(calls)
        ]
    return message


def outcome(number: int, calls: Sequence[ToolCall], observation: str) -> list[Message]:
    """Return what the model is told after a reply: a message for each call, or one of the user's.

    Args:
        number: of the reply in its episode, from 0 on.
        observation: of its command, which is its first call.
    """
    if not calls:
        return [{"role": "user", "content": observation}]
    told = [observation, *[NOT_RUN] * (len(calls) - 1)]
    return [
        {"role": "tool", "tool_call_id": call_id(number, n), "name": call.name, "content": content}
        for n, (call, content) in enumerate(zip(calls, told, strict=True))
    ]
