"""A model that works in a shell: one command per turn, until it replies without one.

    instruction → reply with a command → its outcome → reply … → reply without a command

`Episode` holds the conversation and all limits; its caller generates the replies. An episode ends with
an `Ending`; a shell that fails raises instead. Commands have one of two forms (`Calls`):

    block   user: instruction → assistant: text with a ```bash block → user: its outcome → …
    tools   user: instruction → assistant: `tool_calls` → tool: its outcome → …
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from coding_model_project.config_key import key, option
from coding_model_project.episodes.tool_calls import (
    BASH_TOOL,
    ArgumentsError,
    ToolCall,
    bash_command,
    object_text,
)
from coding_model_project.errors import HarborError
from coding_model_project.grading.extract import first_block
from coding_model_project.grading.prompts import Message

# ── messages ──────────────────────────────────────────────────────────────────────────────────────────


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


@dataclass
class BashConfig:
    """Settings of bash agent episodes. `recipes.harbor` enables them; other recipes have none."""

    turns: int = key(
        0,
        "Most commands of the bash agent in an episode on a Harbor task. 0 disables such episodes.",
        unit="turns",
    )
    calls: Calls = key(
        Calls.block,
        "The form of the model's commands: `block`, a code block tagged bash, or `tools`, calls of a "
        "tool `bash`, which the model's chat template must support (`tools`, role `tool`).",
    )
    reply_tokens: int | None = key(
        None,
        "Most tokens of a reply. null: an equal share of `data.max_response_length`, which holds the "
        "whole episode, observations included.",
        unit="tokens",
    )
    command_s: float = key(
        60.0,
        "Time limit of one command, after which it is killed and the model is informed.",
        unit="s",
    )
    total_s: float = key(
        600.0,
        "Time limit of an episode, replies included; then the verifier judges the work done. A task's "
        "own `[agent] timeout_sec` applies too.",
        unit="s",
    )
    output_bytes: int = key(
        4096,
        "Most bytes of a command's output that the model sees: beginning and end.",
        unit="bytes",
    )
    rooms: int = key(
        64,
        "Concurrent episodes, each in an environment of its own, in each of verl's "
        "`actor_rollout_ref.rollout.agent.num_workers`.",
        unit="rooms",
    )


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


# ── an episode ────────────────────────────────────────────────────────────────────────────────────────


class Ending(StrEnum):
    """The reason why an episode ended. The verifier judges the work done in any case."""

    done = "done"
    """The model replied without a command or a call."""
    turns = "turns"
    """The last allowed command has run."""
    tokens = "tokens"
    """A reply was truncated, or no token is left for another."""
    time = "time"
    context = "context"
    """A command's outcome and a reply to it do not fit into the model's context."""


class ContextOverflow(HarborError):
    """A conversation that leaves no room for another reply in the model's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of an episode."""

    turns: int = option(20, "Let the model run up to N commands.", min=1)
    """Most replies with a command or with an invalid call."""
    command_s: float = option(120.0, "Kill a command after N seconds.", min=0.1)
    """Wall seconds; the model is informed."""
    total_s: float = option(1800.0, "End a trial's agent after N seconds.", min=1.0)
    """Wall seconds of commands and replies together."""
    tokens: int | None = None
    """Most tokens of all replies; None for no limit."""
    output_bytes: int = 16_384
    """Most bytes of a command's output that the model sees: its beginning and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's reply."""

    text: str
    """Its text; in form `tools`, without the calls."""
    tokens: int
    prompt_tokens: int = 0
    """Tokens of the conversation before it; 0 if the model does not report them."""
    cut: bool = False
    """True if a limit ended it and not the model: it may hold half a command."""
    calls: tuple[ToolCall, ...] = ()
    """Its tool calls, in form `tools`."""
    seconds: float | None = None
    """Wall seconds to generate it; None if not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A reply and its outcome."""

    reply: Reply
    command: str | None = None
    """The command that ran; None if none did."""
    exit_code: int | None = None
    observation: str | None = None
    """The command's outcome or the call's error; the model reads it unless the episode ends here."""
    command_s: float = 0.0


class Ended(Protocol):
    """A finished command: its exit and its output."""

    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def killed(self) -> object | None: ...
    @property
    def timed_out(self) -> bool: ...


class Shell(Protocol):
    """A Harbor environment that runs commands, one at a time."""

    async def run_command(
        self, command: str, *, timeout_s: float, user: str | int | None, max_output: int
    ) -> Ended:
        """Run a command to its end, or kill it after `timeout_s`."""
        ...


class Model(Protocol):
    """A model that replies to a conversation."""

    async def reply(self, messages: Sequence[Message], max_tokens: int | None) -> Reply:
        """Reply to the last message.

        Args:
            messages: the whole conversation. Within an episode it only grows, by the reply and its
                outcome: a message of role `user`, or one of role `tool` per call.

        Raises:
            ContextOverflow: the conversation leaves no room for a reply.
            Exception: generation failed, so nothing is known about the model.
        """
        ...


def command_of(reply: str) -> str | None:
    """Return the command in a reply: the first closed ```bash block, if there is one."""
    return first_block(reply, language="bash")


def observation(ended: Ended, command_s: float) -> str:
    """Return the model's observation of a command: a line on how it ended, then its output.

    Args:
        command_s: the command's time limit in seconds.
    """
    if ended.timed_out:
        how = f"timed out after {command_s:.3g} s"
    elif ended.killed is not None:
        how = f"killed: {ended.killed}"
    else:
        how = f"exit code {ended.exit_code}"
    output = ended.stdout + ended.stderr
    return f"{how}\n{output}".rstrip("\n")


class Episode:
    """A conversation in progress. The caller generates replies and passes them to `take` until it ends.

    Args:
        shell: runs the commands; the caller closes it.
        calls: the form of commands; in form `tools`, replies hold calls separately from their text.
        user: the commands' user.
    """

    def __init__(
        self,
        instruction: str,
        shell: Shell,
        limits: Limits,
        *,
        calls: Calls = Calls.block,
        user: str | int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shell, self._limits, self._user = shell, limits, user
        self._calls = calls
        self._clock = clock
        self._deadline = clock() + limits.total_s
        self.messages: list[Message] = opening(instruction, calls)
        self.turns: list[Turn] = []
        self.ending: Ending | None = None

    @property
    def tokens_left(self) -> int | None:
        """Most tokens of the next reply; None for no limit."""
        if self._limits.tokens is None:
            return None
        return max(0, self._limits.tokens - sum(turn.reply.tokens for turn in self.turns))

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - self._clock())

    def end(self, ending: Ending) -> None:
        """End the episode, if it has not ended."""
        self.ending = self.ending or ending

    async def take(self, reply: Reply) -> None:
        """Add a reply, run its command, and add the outcome; or end the episode.

        Raises:
            EnvironmentFailed: the environment is lost. The episode then has no ending.
        """
        number = len(self.turns)
        self.messages.append(reply_message(number, reply.text, reply.calls))
        request = None if reply.cut else self._request(reply)
        if request is None or self.seconds_left <= 0:
            self.turns.append(Turn(reply=reply))
            self.end(Ending.time if request else Ending.tokens if reply.cut else Ending.done)
            return
        if isinstance(request, ArgumentsError):
            self.turns.append(Turn(reply=reply, observation=f"error: {request}"))
        else:
            self.turns.append(await self._run(reply, request))
        observation = self.turns[-1].observation or ""
        if len(self.turns) >= self._limits.turns:
            self.end(Ending.turns)
        elif self.seconds_left <= 0:
            self.end(Ending.time)
        elif self.tokens_left == 0:
            self.end(Ending.tokens)
        else:
            self.messages += outcome(number, reply.calls, observation)

    def _request(self, reply: Reply) -> str | ArgumentsError | None:
        """Return a reply's command, its call's error, or None if it has neither."""
        if self._calls is Calls.block:
            return command_of(reply.text)
        if not reply.calls:
            return None
        try:
            return bash_command(reply.calls[0])
        except ArgumentsError as error:
            return error

    async def _run(self, reply: Reply, command: str) -> Turn:
        allowed_s = min(self._limits.command_s, self.seconds_left)
        started = self._clock()
        ended = await self._shell.run_command(
            f"exec 2>&1\n{command}",  # one stream, in the order in which it was printed
            timeout_s=allowed_s,
            user=self._user,
            max_output=self._limits.output_bytes,
        )
        return Turn(
            reply=reply,
            command=command,
            exit_code=ended.exit_code,
            observation=observation(ended, allowed_s),
            command_s=self._clock() - started,
        )
