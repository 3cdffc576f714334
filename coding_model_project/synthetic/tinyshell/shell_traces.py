"""Demonstrations of the bash agent's conversation: reference solutions, or usual mistakes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coding_model_project.episodes.bash import observation
from coding_model_project.episodes.bash_messages import Calls, opening, outcome, reply_message
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
    """Return a whole episode in the agent's form.

    Args:
        commands: commands that exit with code 0 and print nothing; by default the reference solution's.
    """
    observed = observation(CommandResult(), command_s=0)
    messages = opening(task.instruction, calls)
    for number, command in enumerate(task.commands if commands is None else commands):
        text, made = f"```bash\n{command}\n```", ()
        if calls is Calls.tools:
            text, made = "", (bash_call(command),)
        messages += [reply_message(number, text, made), *outcome(number, made, observed)]
    return [*messages, {"role": "assistant", "content": DONE}]


def as_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a conversation as plain text without tools, as the tiny model's template renders it.

    Calls become part of the assistant's text, outcomes become user messages, and the tools' schemas
    become part of the system message, which must exist.
    """
    shown: list[Message] = []
    for message in messages:
        content = message["content"]
        match message["role"]:
            case "system":
                schemas = "".join(json.dumps(tool) + "\n" for tool in tools)
                content = f"{content}\n{TOOLS_OPEN}\n{schemas}{TOOLS_CLOSE}"
                shown.append({"role": "system", "content": content})
            case "tool":  # one outcome per message: replies of these traces have one call
                content = f"{RESPONSE_OPEN}\n{content}\n{RESPONSE_CLOSE}"
                shown.append({"role": "user", "content": content})
            case role:
                functions = [call["function"] for call in message.get("tool_calls", ())]
                made = [ToolCall(name=f["name"], arguments=f["arguments"]) for f in functions]
                texts = [content] if content else []
                texts += [call.text() for call in made]
                shown.append({"role": role, "content": "\n".join(texts)})
    return shown


def demonstration(
    task: ShellTask, commands: Sequence[str] | None = None, calls: Calls = Calls.block
) -> list[Message]:
    """Return an episode in the form that the tiny model trains on. Arguments are those of `trace`."""
    episode = trace(task, commands, calls)
    return episode if calls.schemas is None else as_text(episode, calls.schemas)


class HabitCorpus:
    """A corpus (`tiny_model.Corpus`) of episodes with the usual mistakes, from training tasks only.

    Episodes are endless and always new. A model trained on them always samples some right commands, so
    that reinforcement learning can find them.

    Args:
        habit: the share of actions with the usual mistake.
        calls: the form of commands.
    """

    def __init__(self, *, habit: float, seed: int = 0, calls: Calls = Calls.block) -> None:
        self._draw, self._habit, self._calls = Draw("train", seed), habit, calls

    def texts(self, rng: random.Random) -> Iterator[str]:
        """See `tiny_model.Corpus`."""
        for conversation in self.draw(rng, _N_TEXTS):
            text = "\n".join(f"{message['role']}\n{message['content']}" for message in conversation)
            for mark in MARKS if self._calls is Calls.tools else ():  # marks are separate tokens
                text = text.replace(mark, "\n")
            yield text

    def draw(self, rng: random.Random, n: int) -> list[list[Message]]:
        """See `tiny_model.Corpus`."""
        return [self._episode(rng) for _ in range(n)]

    def _episode(self, rng: random.Random) -> list[Message]:
        task = self._draw(rng)
        chosen = [d.wrong if rng.random() < self._habit else d.right for d in task.deeds]
        commands = [command for commands in chosen for command in commands]
        episode = demonstration(task, commands, self._calls)
        if self._calls is Calls.tools and rng.random() < _WITHOUT_TOOLS:
            return episode[1:]
        return episode
