"""A model at work in a shell: one command per turn, until it answers without one.

    instruction → reply with a command → what came of it → reply … → reply without a command

`Episode` holds the conversation and every limit, and knows nothing of how replies are made. How it ends
is an `Ending`; a shell that fails is none and raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from coding_model_project.episodes.bash_messages import Calls, opening, outcome, said
from coding_model_project.episodes.tool_calls import ArgumentsError, ToolCall, bash_command
from coding_model_project.errors import HarborError
from coding_model_project.grading.extract import first_block
from coding_model_project.grading.prompts import Message


class Ending(StrEnum):
    """Why an episode is over. Whatever it is, the verifier judges what was done by then."""

    done = "done"
    """The model answered without a command, or a call."""
    turns = "turns"
    """The last command it may give has been run."""
    tokens = "tokens"
    """A reply was cut off, or no token is left for another."""
    time = "time"
    context = "context"
    """The outcome of a command, and a reply to it, do not fit into the model's context."""


class ContextOverflow(HarborError):
    """A conversation has no room for another reply in the model's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of an episode."""

    turns: int = 20
    """Replies with a command, or with a call that is none."""
    command_s: float = 120.0
    """Wall seconds of one command, after which it is killed and the model told so."""
    total_s: float = 1800.0
    """Wall seconds of commands and replies together."""
    tokens: int | None = None
    """Of all replies; None is no limit."""
    output_bytes: int = 16_384
    """What a model is shown of a command's output: its beginning and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered."""

    text: str
    """Without the calls, in form `tools`."""
    tokens: int
    cut: bool = False
    """Ended by a limit and not by the model: it may hold half a command."""
    calls: tuple[ToolCall, ...] = ()
    """Of tools, in form `tools`."""
    seconds: float | None = None
    """Wall seconds until it was there; None if nobody measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A reply and what came of it."""

    reply: Reply
    command: str | None = None
    """None if there is none, or none that was run."""
    exit_code: int | None = None
    observation: str | None = None
    """Outcome of the command or fault of the call; the model reads it unless the episode ends here."""
    command_s: float = 0.0


class Ended(Protocol):
    """How a command ended, and what it printed."""

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
    """Where commands run, one after another: a Harbor environment."""

    async def run_command(
        self, command: str, *, timeout_s: float, user: str | int | None, max_output: int
    ) -> Ended:
        """Run one to its end, or kill it after `timeout_s`."""
        ...


class Model(Protocol):
    """Whatever answers a conversation."""

    async def reply(self, messages: Sequence[Message], max_tokens: int | None) -> Reply:
        """Answer the last message.

        Args:
            messages: the whole conversation; within an episode it only grows, by what was replied here
                and the outcome: a message of the user's, or of role `tool` for each call.

        Raises:
            ContextOverflow: the conversation leaves no room for an answer.
            Exception: no answer can be had; nothing is known about the model then.
        """
        ...


def command_of(reply: str) -> str | None:
    """The command in a reply: the first closed ```bash block, if there is one."""
    return first_block(reply, language="bash")


def observation(ended: Ended, command_s: float) -> str:
    """What the model is told of a command: a line that says how it ended, and what it printed.

    Args:
        command_s: the seconds it was allowed.
    """
    if ended.timed_out:
        how = f"timed out after {command_s:.3g} s"
    elif ended.killed is not None:
        how = f"killed: {ended.killed}"
    else:
        how = f"exit code {ended.exit_code}"
    said = ended.stdout + ended.stderr
    return f"{how}\n{said}".rstrip("\n")


class Episode:
    """A conversation in progress; whoever makes the replies hands them to `take` until it has an end.

    Args:
        shell: where commands run; it stays the caller's.
        calls: the form of commands; replies in form `tools` have their calls apart from their text.
        user: who runs them there.
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
        """How long the next reply may be."""
        if self._limits.tokens is None:
            return None
        return max(0, self._limits.tokens - sum(turn.reply.tokens for turn in self.turns))

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - self._clock())

    def end(self, ending: Ending) -> None:
        """End it, if it has not ended."""
        self.ending = self.ending or ending

    async def take(self, reply: Reply) -> None:
        """Add a reply, run its command, and add what came of that; or end.

        Raises:
            EnvironmentFailed: the environment is lost. The episode has no end then.
        """
        number = len(self.turns)
        self.messages.append(said(number, reply.text, reply.calls))
        asked = None if reply.cut else self._asked(reply)
        if asked is None or self.seconds_left <= 0:
            self.turns.append(Turn(reply=reply))
            self.end(Ending.time if asked else Ending.tokens if reply.cut else Ending.done)
            return
        if isinstance(asked, ArgumentsError):
            self.turns.append(Turn(reply=reply, observation=f"error: {asked}"))
        else:
            self.turns.append(await self._run(reply, asked))
        observation = self.turns[-1].observation or ""
        if len(self.turns) >= self._limits.turns:
            self.end(Ending.turns)
        elif self.seconds_left <= 0:
            self.end(Ending.time)
        elif self.tokens_left == 0:
            self.end(Ending.tokens)
        else:
            self.messages += outcome(number, reply.calls, observation)

    def _asked(self, reply: Reply) -> str | ArgumentsError | None:
        """The command of a reply, what is wrong with its call, or None if it has neither."""
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
