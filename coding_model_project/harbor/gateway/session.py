"""One sample's agent at the gateway: its limits, its replies, and its recording."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from coding_model_project.episodes.tool_calls import for_template, parse
from coding_model_project.errors import CodingModelError, HarborError
from coding_model_project.harbor.environment.base import CommandResult, Environment
from coding_model_project.harbor.gateway.recorder import Ended, Generated, Place, Recorder, Turn
from coding_model_project.harbor.gateway.requests import Ask, Message, RequestError

_KEY_BYTES = 32
_REQUESTS_PER_TURN, _MORE_REQUESTS = 4, 100
_FLOODED = "rate_limit_error"


class Limit(StrEnum):
    """A limit that rejects requests."""

    turns = "turns"
    context = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one sample's agent."""

    turns: int = 50
    """Most replies, in all conversations together."""
    reply_tokens: int | None = None
    """Most tokens of one reply; None allows what the conversation has left."""
    prompt_tokens: int = 4096
    """Most tokens of a conversation's opening."""
    response_tokens: int = 4096
    """Most tokens of a conversation after its opening."""
    context_tokens: int = 8192
    """Most tokens of a conversation."""
    at_once: int = 8
    """Most requests in progress."""
    command_s: float = 60.0
    """Wall seconds of one /v1/shell command."""
    output_bytes: int = 65_536
    """Bytes kept of each stream of such a command."""


class Policy(Protocol):
    """The model in training."""

    async def generate(
        self, prompt: Sequence[int], *, max_tokens: int, stop: Sequence[str]
    ) -> Generated:
        """Generate one reply.

        Raises:
            CodingModelError: the engine failed; the sample is dropped.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The tokens between one reply and the next."""

    added: Sequence[int]
    dropped: int = 0
    """Tokens at the end of the reply that `added` replaces."""


class TemplateRefused(Exception):
    """An error of a chat template that rejects the messages."""


class Codec(Protocol):
    """A converter between text and tokens by the model's chat template. Called from threads."""

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> Sequence[int]:
        """Return the tokens of a conversation's opening, up to the start of the model's reply.

        Raises:
            TemplateRefused: the template rejects the messages.
        """
        ...

    def following(
        self,
        messages: Sequence[Message],
        known: int,
        tools: Sequence[Mapping[str, Any]],
        ids: Sequence[int],
        *,
        ended: Ended,
    ) -> Following:
        """Return the tokens of the messages after the first `known`, up to the start of a reply.

        Args:
            ids: tokens of the first `known` messages, the last of which is a reply.
            ended: how that reply ended.

        Raises:
            TemplateRefused: the template rejects the messages.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return a reply's text, without special tokens."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply as the client receives it."""

    message: Message
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


class Session:
    """One sample's agent, which sends `key` with each request.

    Args:
        environment: where /v1/shell runs commands; None disables it.
        user: the user of these commands.
    """

    def __init__(
        self,
        policy: Policy,
        codec: Codec,
        limits: Limits,
        *,
        environment: Environment | None = None,
        user: str | int | None = None,
    ) -> None:
        self.key = secrets.token_urlsafe(_KEY_BYTES)
        self.recorder = Recorder()
        self.failure: CodingModelError | None = None
        """An infrastructure failure, after which nothing is known about the agent."""
        self.failed = asyncio.Event()
        self.refused: Limit | None = None
        """The limit that rejected the last request."""
        self.n_undelivered = 0
        """Tokens of replies whose client had gone."""
        self.commands: list[float] = []
        """Wall seconds of each of the agent's /v1/shell commands."""
        self._policy, self._codec, self._limits = policy, codec, limits
        self._environment, self._user = environment, user
        self._shell = asyncio.Lock()
        self._running: set[asyncio.Task[Answer]] = set()
        self._n_requests = self._n_begun = 0
        self._open = True

    @property
    def is_open(self) -> bool:
        """Return whether requests get replies."""
        return self._open and self.failure is None

    async def close(self) -> None:
        """Reject further requests, and wait until the policy stops generating."""
        self._open = False
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def admit(self) -> None:
        """Count a request.

        Raises:
            RequestError: the sample is over, or the agent has sent too many requests.
        """
        self._check_open()
        self._n_requests += 1
        if self._n_requests > _REQUESTS_PER_TURN * self._limits.turns + _MORE_REQUESTS:
            raise RequestError("too many requests of this sample", status=429, kind=_FLOODED)

    async def reply(self, ask: Ask, is_gone: Callable[[], Awaitable[bool]] | None = None) -> Answer:
        """Return the policy's reply.

        Args:
            is_gone: returns whether the client has disconnected; called after generation.

        Raises:
            RequestError: there is no reply; the message is for the client.
        """
        self._check_open()
        if len(self._running) >= self._limits.at_once:
            raise RequestError("too many requests at once", status=429, kind=_FLOODED)
        task = asyncio.ensure_future(self._accounted(ask, is_gone))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # Shielded, so that generated tokens are recorded even if the client disconnects.
        return await asyncio.shield(task)

    async def run_command(self, command: str, timeout_s: float | None = None) -> CommandResult:
        """Run a command in the agent's environment.

        Raises:
            RequestError: there is no environment, or it failed.
        """
        self._check_open()
        if self._environment is None:
            raise RequestError(
                "no shell: this agent runs in its environment", status=404, code="no_shell"
            )
        allowed_s = self._limits.command_s if timeout_s is None else timeout_s
        async with self._shell:
            started = time.monotonic()
            try:
                return await self._environment.run_command(
                    command,
                    timeout_s=min(allowed_s, self._limits.command_s),
                    user=self._user,
                    max_output=self._limits.output_bytes,
                )
            except CodingModelError as error:
                raise self._fail(error) from error
            finally:
                self.commands.append(time.monotonic() - started)

    # ── one reply ─────────────────────────────────────────────────────────────────────────────────

    async def _accounted(self, ask: Ask, is_gone: Callable[[], Awaitable[bool]] | None) -> Answer:
        try:
            return await self._reply(ask, is_gone)
        except RequestError:
            raise
        except CodingModelError as error:
            raise self._fail(error) from error
        except Exception as error:
            kind = type(error).__name__
            raise self._fail(HarborError(f"the gateway failed: {kind}: {error}")) from error

    async def _reply(self, ask: Ask, is_gone: Callable[[], Awaitable[bool]] | None) -> Answer:
        if self._n_begun >= self._limits.turns:
            self.refused = Limit.turns
            raise RequestError(
                f"the sample's {self._limits.turns} replies are used up",
                status=403,
                code="turns_used_up",
            )
        self._n_begun += 1
        try:
            place = self.recorder.find(ask)
            before = [] if place.after is None else place.after.ids()
            following = await asyncio.to_thread(self._tokens, ask, place, before)
            prompt = [*before[: len(before) - following.dropped], *following.added]
            room = self._room(len(prompt), place.after)
        except BaseException:
            self._n_begun -= 1
            raise
        self.refused = None
        n = min(room, ask.max_tokens or room)
        generated = await self._policy.generate(prompt, max_tokens=n, stop=ask.stop)
        message = self._message(ask, generated)
        if not self.is_open or (is_gone is not None and await is_gone()):
            self.n_undelivered += len(generated.ids)
            raise RequestError("the sample is over", status=401, kind="authentication_error")
        self.recorder.add(
            ask,
            place,
            dropped=following.dropped,
            added=following.added,
            generated=generated,
            reply=message,
        )
        calls = "tool_calls" in message
        cut = generated.ended is Ended.length
        return Answer(
            message=message,
            finish_reason="length" if cut else "tool_calls" if calls else "stop",
            prompt_tokens=len(prompt),
            completion_tokens=len(generated.ids),
        )

    def _tokens(self, ask: Ask, place: Place, before: Sequence[int]) -> Following:
        messages = for_template(ask.messages)
        try:
            if place.after is None:
                return Following(added=self._codec.opening(messages, ask.tools))
            ended = place.after.generated.ended
            return self._codec.following(messages, place.known, ask.tools, before, ended=ended)
        except TemplateRefused as error:
            raise RequestError(str(error), code="template", param="messages") from error

    def _room(self, n: int, after: Turn | None) -> int:
        """Return the most tokens of a reply to a prompt of `n` tokens.

        Raises:
            RequestError: no token is left.
        """
        limits = self._limits
        opening = n if after is None else after.n_opening
        too_long = opening > limits.prompt_tokens
        left = min(limits.context_tokens - n, limits.response_tokens - (n - opening))
        if too_long or left < 1:
            self.refused = Limit.context
            most = limits.prompt_tokens if too_long else n + left
            raise RequestError(
                f"This model's maximum context length is {most} tokens. However, your messages "
                f"resulted in {n} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
                param="messages",
            )
        return min(left, limits.reply_tokens or left)

    def _message(self, ask: Ask, generated: Generated) -> Message:
        text = self._codec.decode(generated.ids)
        ends = [at for stop in ask.stop if (at := text.find(stop)) >= 0]
        text = text[: min(ends, default=len(text))]
        message: Message = {"role": "assistant", "content": text}
        if ask.tools and ask.calls_tools:
            parsed = parse(text)
            if parsed.calls:
                message["content"] = parsed.content
                message["tool_calls"] = [
                    call.openai(f"call_{secrets.token_hex(12)}") for call in parsed.calls
                ]
        return message

    def _check_open(self) -> None:
        if self.failure is not None:
            raise _unavailable()
        if not self._open:
            raise RequestError("the sample is over", status=401, kind="authentication_error")

    def _fail(self, error: CodingModelError) -> RequestError:
        self.failure = self.failure or error
        self.failed.set()
        return _unavailable()


def _unavailable() -> RequestError:
    """Return an error that hides the cause from the client."""
    return RequestError("the model or the environment is gone", status=503, kind="server_error")
