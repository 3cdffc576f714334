"""The messages of a bash agent's episode, in both forms of commands.

block   user: instruction → assistant: text with a ```bash block → user: its outcome → …
tools   user: instruction → assistant: `tool_calls` → tool: its outcome → …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from coding_model_project.episodes.tool_calls import BASH_TOOL, ToolCall, object_text
from coding_model_project.grading.prompts import Message


class Calls(StrEnum):
    """The form of a model's commands."""

    block = "block"
    """A block tagged `bash` in the reply's text."""
    tools = "tools"
    """A call of the tool `bash`, in the form of the model's chat template."""

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
"""The outcome of each call after a reply's first."""


def opening(instruction: str, calls: Calls = Calls.block) -> list[Message]:
    """Return the messages that an episode begins with."""
    return [
        {"role": "system", "content": TOOL_INSTRUCTIONS if calls is Calls.tools else INSTRUCTIONS},
        {"role": "user", "content": instruction.strip()},
    ]


def call_id(reply: int, call: int) -> str:
    """Return the id of a reply's call: nine letters and digits, as the strictest servers require."""
    return f"call{reply % 1000:03}{call % 100:02}"


def reply_message(number: int, text: str, calls: Sequence[ToolCall] = ()) -> Message:
    """Return a reply as a message; its calls have the ids that `outcome` answers.

    Arguments that are not a JSON object are wrapped in one, since servers reject such a conversation.

    Args:
        number: the reply's number in its episode, from 0 on.
    """
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            replace(call, arguments=object_text(call.arguments)).openai(call_id(number, n))
            for n, call in enumerate(calls)
        ]
    return message


def outcome(number: int, calls: Sequence[ToolCall], observation: str) -> list[Message]:
    """Return the messages after a reply: one of role `tool` per call, or one of role `user`.

    Args:
        number: the reply's number in its episode, from 0 on.
        observation: the observation of its command, which is its first call.
    """
    if not calls:
        return [{"role": "user", "content": observation}]
    contents = [observation, *[NOT_RUN] * (len(calls) - 1)]
    return [
        {"role": "tool", "tool_call_id": call_id(number, n), "name": call.name, "content": content}
        for n, (call, content) in enumerate(zip(calls, contents, strict=True))
    ]
