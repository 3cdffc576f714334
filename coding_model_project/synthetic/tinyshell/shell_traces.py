"""What a model is shown of the bash agent's conversation: the reference solution, or usual mistakes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coding_model_project.episodes.bash import observation
from coding_model_project.episodes.bash_messages import Calls, opening, outcome, said
from coding_model_project.episodes.tool_calls import (
    MARKS,
    RESPONSE_CLOSE,
    RESPONSE_OPEN,
    TOOLS_CLOSE,
    TOOLS_OPEN,
    ToolCall,
    bash_call,
)
from coding_model_project.grading.prompts import Message
from coding_model_project.harbor.environment.base import CommandResult
from coding_model_project.synthetic.tinyshell.shell_generator import Draw, ShellTask

DONE = "Done."
_N_TEXTS = 2000
_WITHOUT_TOOLS = 0.8
"""Share of `tools` episodes that begin with the task: no system message and no schemas.

Among the schemas' hundred tokens a tiny model takes more than 1,500 steps until it copies names from the
task into its commands; from episodes without them it learns that in half the time.
"""


def trace(
    task: ShellTask, commands: Sequence[str] | None = None, calls: Calls = Calls.block
) -> list[Message]:
    """A whole episode, as the agent would have it.

    Args:
        commands: that end with exit code 0 and print nothing; the reference solution's by default.
    """
    told = observation(CommandResult(), command_s=0)
    messages = opening(task.instruction, calls)
    for number, command in enumerate(task.commands if commands is None else commands):
        text, made = f"```bash\n{command}\n```", ()
        if calls is Calls.tools:
            text, made = "", (bash_call(command),)
        messages += [said(number, text, made), *outcome(number, made, told)]
    return [*messages, {"role": "assistant", "content": DONE}]


def as_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a conversation as the tiny model's template shows it: of plain text, without tools.

    Each call stands in the assistant's text, each outcome in a message of the user's, and the tools'
    schemas in the system message, which is there.
    """
    shown: list[Message] = []
    for message in messages:
        content = message["content"]
        match message["role"]:
            case "system":
                schemas = "".join(json.dumps(tool) + "\n" for tool in tools)
                content = f"{content}\n{TOOLS_OPEN}\n{schemas}{TOOLS_CLOSE}"
                shown.append({"role": "system", "content": content})
            case "tool":  # an outcome each: these traces have one call in a reply
                content = f"{RESPONSE_OPEN}\n{content}\n{RESPONSE_CLOSE}"
                shown.append({"role": "user", "content": content})
            case role:
                functions = [call["function"] for call in message.get("tool_calls", ())]
                made = [ToolCall(name=f["name"], arguments=f["arguments"]) for f in functions]
                texts = [content] if content else []
                texts += [call.text() for call in made]
                shown.append({"role": role, "content": "\n".join(texts)})
    return shown


class HabitCorpus:
    """Episodes of somebody with habits, who does each thing in the usual wrong way so often.

    Without end and drawn anew; of training words alone. A model of these has always the right command
    among what it samples, so that reinforcement learning can find it.

    Args:
        habit: the share of wrong ones.
        calls: how commands are given.
    """

    def __init__(self, *, habit: float, seed: int = 0, calls: Calls = Calls.block) -> None:
        self._draw, self._habit, self._calls = Draw("train", seed), habit, calls

    def texts(self, rng: random.Random) -> Iterator[str]:
        """See `tiny_model.Corpus`."""
        for conversation in self.draw(rng, _N_TEXTS):
            text = "\n".join(f"{message['role']}\n{message['content']}" for message in conversation)
            for mark in MARKS if self._calls is Calls.tools else ():  # tokens of their own
                text = text.replace(mark, "\n")
            yield text

    def draw(self, rng: random.Random, n: int) -> list[list[Message]]:
        """See `tiny_model.Corpus`."""
        return [self._episode(rng) for _ in range(n)]

    def _episode(self, rng: random.Random) -> list[Message]:
        task = self._draw(rng)
        chosen = [d.wrong if rng.random() < self._habit else d.right for d in task.deeds]
        commands = [command for commands in chosen for command in commands]
        episode = trace(task, commands, self._calls)
        schemas = self._calls.schemas
        if schemas is None:
            return episode
        conversation = as_text(episode, schemas)
        return conversation[1:] if rng.random() < _WITHOUT_TOOLS else conversation
