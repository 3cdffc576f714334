"""One agent's requests: its key, its limits, its replies on their way, and its shell.

`Session` is one with a policy, whose tokens are recorded.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coding_model_project.episodes.tool_calls import for_template
from coding_model_project.errors import CodingModelError, HarborError
from coding_model_project.harbor.environment.base import CommandResult, Environment
from coding_model_project.harbor.gateway import requests
from coding_model_project.harbor.gateway.recorder import Generated, Place, Recorder, Turn
from coding_model_project.harbor.gateway.requests import (
    Answer,
    Ask,
    Message,
    RequestError,
    read_reply,
)
from coding_model_project.harbor.harbor_config import AgentEnding

_KEY_BYTES = 32
_REQUESTS_PER_TURN, _MORE_REQUESTS = 4, 100
_FLOODED = "rate_limit_error"
_MOST_IGNORED = 64
_LAST_S = 10.0
"""Seconds that an agent has to end after it learned that its replies are used up."""
IsGone = Callable[[], Awaitable[bool]]
"""Returns whether a client has disconnected."""


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


@dataclass(slots=True, kw_only=True, eq=False)
class Pending:
    """A reply on its way to a client, whose place another client with an equal request can take."""

    key: tuple[Any, ...]
    place: Place
    is_gone: IsGone | None
    prompt_tokens: asyncio.Future[int]
    """Done when nothing but the policy's reply is missing."""
    task: asyncio.Task[Turn] = field(init=False)


class AgentSession(ABC):
    """One sample's agent, which sends `key` with each request. Subclasses make the replies.

    Args:
        environment: where /v1/shell runs commands; None disables it.
        user: the user of these commands.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        environment: Environment | None = None,
        user: str | int | None = None,
    ) -> None:
        self.key = secrets.token_urlsafe(_KEY_BYTES)
        self.limits = limits
        self.recorder = Recorder()
        self.failure: CodingModelError | None = None
        """An infrastructure failure, after which nothing is known about the agent."""
        self.over = asyncio.Event()
        """Set when the agent is to be ended: after a failure, and soon after it used up its replies."""
        self.refused: AgentEnding | None = None
        """The limit that rejected the last request."""
        self.ignored: set[str] = set()
        """Names of options in requests that had no effect."""
        self.commands: list[float] = []
        """Wall seconds of each of the agent's /v1/shell commands."""
        self._environment, self._user = environment, user
        self._shell = asyncio.Lock()
        self._running: set[asyncio.Task[Turn]] = set()
        self._undelivered: list[Pending] = []
        self._n_requests = self._n_begun = 0
        self._open = True

    @abstractmethod
    async def _reply(self, ask: Ask, pending: Pending) -> Turn:
        """Make a reply, and call `_accept` as soon as the request is known to get one.

        Raises:
            RequestError: the request is refused.
            CodingModelError: the model failed; the sample is dropped.
        """

    @abstractmethod
    async def _count(self, ask: Ask) -> int:
        """Return the number of a request's tokens.

        Raises:
            RequestError: it cannot be counted.
        """

    @property
    def is_open(self) -> bool:
        """Return whether requests get replies."""
        return self._open and self.failure is None

    async def close(self) -> None:
        """Reject further requests, and wait until the model stops generating."""
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
        if self._n_requests > _REQUESTS_PER_TURN * self.limits.turns + _MORE_REQUESTS:
            raise RequestError("too many requests of this sample", status=429, kind=_FLOODED)

    @property
    def n_undelivered(self) -> int:
        """Tokens of generated replies that no client has received."""
        done = [one.task for one in self._undelivered if one.task.done()]
        return sum(one.result().answer.completion_tokens for one in done if not one.exception())

    async def begin(self, ask: Ask, is_gone: IsGone | None = None) -> Pending:
        """Begin a reply, or take over that of an equal request whose client is gone.

        Raises:
            RequestError: there will be no reply; the message is for the client.
        """
        self._check_open()
        self.ignored |= set(sorted(ask.ignored)[: _MOST_IGNORED - len(self.ignored)])
        place = self.recorder.find(ask)
        key = (place.at, ask.calls_tools, ask.one_call, ask.max_tokens, ask.stop)
        checked = asyncio.get_running_loop().create_future()
        pending = Pending(key=key, place=place, is_gone=is_gone, prompt_tokens=checked)
        if (abandoned := await self._abandoned(pending)) is not None:
            pending = abandoned
        else:
            self._start(ask, pending)
        either = (pending.task, pending.prompt_tokens)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if pending.task.done():
            pending.task.result()  # raises what the checks found
        return pending

    async def finish(self, pending: Pending, is_gone: IsGone | None = None) -> Answer:
        """Return a reply once it is generated, and record it as delivered.

        Raises:
            RequestError: there is no reply for this client.
        """
        # Shielded, so that generated tokens are recorded even if the client disconnects.
        turn = await asyncio.shield(pending.task)
        gone = is_gone is not None and await is_gone()
        if not self.is_open or gone or pending.is_gone is not is_gone:
            raise _over()
        self._undelivered.remove(pending)
        self.recorder.add(pending.place, turn)
        return turn.answer

    async def count(self, ask: Ask) -> int:
        """Return the number of a request's tokens.

        Raises:
            RequestError: there is no such number.
        """
        self._check_open()
        return await self._count(ask)

    async def run_command(self, command: str, timeout_s: float | None = None) -> CommandResult:
        """Run a command in the agent's environment.

        Raises:
            RequestError: there is no environment, or it failed.
        """
        self._check_open()
        if self._environment is None:
            said = "no shell: this agent runs in its environment"
            raise RequestError(said, status=404, code="no_shell")
        allowed_s = self.limits.command_s if timeout_s is None else timeout_s
        async with self._shell:
            started = time.monotonic()
            try:
                return await self._environment.run_command(
                    command,
                    timeout_s=min(allowed_s, self.limits.command_s),
                    user=self._user,
                    max_output=self.limits.output_bytes,
                )
            except CodingModelError as error:
                raise self._fail(error) from error
            finally:
                self.commands.append(time.monotonic() - started)

    # ── one reply ─────────────────────────────────────────────────────────────────────────────────

    def _accept(self, pending: Pending, prompt_tokens: int) -> None:
        """Note that nothing but the model's reply is missing."""
        self.refused = None
        pending.prompt_tokens.set_result(prompt_tokens)

    def _too_long(self, message: str, tokens: tuple[int, int] | None = None) -> RequestError:
        """Return the error of a request that does not fit into the context."""
        self.refused = AgentEnding.context
        code = "context_length_exceeded"
        return RequestError(message, code=code, param="messages", tokens=tokens)

    async def _abandoned(self, new: Pending) -> Pending | None:
        """Return the pending reply to an equal request whose client is gone, now the new client's."""
        for one in list(self._undelivered):
            left = one.is_gone
            if one.key == new.key and left is not None and await left() and one.is_gone is left:
                one.is_gone = new.is_gone
                return one
        return None

    def _start(self, ask: Ask, pending: Pending) -> None:
        if len(self._running) >= self.limits.at_once:
            raise RequestError("too many requests at once", status=429, kind=_FLOODED)
        pending.task = asyncio.ensure_future(self._accounted(ask, pending))
        self._running.add(pending.task)
        self._undelivered.append(pending)

        def ended(task: asyncio.Task[Turn]) -> None:
            self._running.discard(task)
            if task.cancelled() or task.exception() is not None:
                self._undelivered.remove(pending)

        pending.task.add_done_callback(ended)

    async def _accounted(self, ask: Ask, pending: Pending) -> Turn:
        turns = self.limits.turns
        if self._n_begun >= turns:
            self.refused = AgentEnding.turns
            asyncio.get_running_loop().call_later(_LAST_S, self.over.set)
            used_up = f"the sample's {turns} replies are used up"
            raise RequestError(used_up, status=403, code="turns_used_up")
        self._n_begun += 1
        try:
            return await self._reply(ask, pending)
        except RequestError:
            self._n_begun -= 1
            raise
        except CodingModelError as error:
            raise self._fail(error) from error
        except Exception as error:
            raise self._fail(HarborError(f"the gateway failed: {error!r:.300}")) from error

    def _check_open(self) -> None:
        if self.failure is not None:
            raise _unavailable()
        if not self._open:
            raise _over()

    def _fail(self, error: CodingModelError) -> RequestError:
        self.failure = self.failure or error
        self.over.set()
        return _unavailable()


def _over() -> RequestError:
    return RequestError("the sample is over", status=401, kind="authentication_error")


def _unavailable() -> RequestError:
    """Return an error that hides the cause from the client."""
    return RequestError("the model or the environment is gone", status=503, kind="server_error")


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
        ended: requests.Ended,
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


class Session(AgentSession):
    """An agent whose replies are a policy's. `more` are options of `AgentSession`."""

    def __init__(self, policy: Policy, codec: Codec, limits: Limits, **more: Any) -> None:
        super().__init__(limits, **more)
        self._policy, self._codec = policy, codec

    async def _count(self, ask: Ask) -> int:
        return len((await self._prompt(ask, self.recorder.find(ask)))[1])

    async def _reply(self, ask: Ask, pending: Pending) -> Turn:
        place = pending.place
        following, prompt = await self._prompt(ask, place)
        room = self._room(len(prompt), place.after)
        self._accept(pending, len(prompt))
        n = min(room, ask.max_tokens or room)
        generated = await self._policy.generate(prompt, max_tokens=n, stop=ask.stop)
        whole = self._codec.decode(generated.ids)
        answer, text = read_reply(
            ask,
            whole,
            ended=generated.ended,
            prompt_tokens=len(prompt),
            completion_tokens=len(generated.ids),
        )
        return Turn(
            parent=place.after,
            dropped=following.dropped,
            added=tuple(following.added),
            generated=generated,
            said=place.new,
            tools=ask.tools,
            answer=answer,
            text=text,
        )

    async def _prompt(self, ask: Ask, place: Place) -> tuple[Following, list[int]]:
        """Return what follows the recorded tokens, and all of the prompt's."""
        before = [] if place.after is None else place.after.ids()
        following = await asyncio.to_thread(self._following, ask, place, before)
        return following, [*before[: len(before) - following.dropped], *following.added]

    def _following(self, ask: Ask, place: Place, before: Sequence[int]) -> Following:
        messages, refused = for_template(place.messages), ""
        # Some templates allow the system's message at the beginning only.
        users = [one | {"role": "user"} if one["role"] == "system" else one for one in messages]
        for tried in (messages, [messages[0], *users[1:]]):
            try:
                if place.after is None:
                    return Following(added=self._codec.opening(tried, ask.tools))
                known, ended = place.known, place.after.generated.ended
                return self._codec.following(tried, known, ask.tools, before, ended=ended)
            except TemplateRefused as error:
                refused = refused or str(error)
        raise RequestError(refused, code="template", param="messages")

    def _room(self, n: int, after: Turn | None) -> int:
        """Return the most tokens of a reply to a prompt of `n` tokens.

        Raises:
            RequestError: no token is left.
        """
        limits = self.limits
        opening = n if after is None else after.n_opening
        too_long = opening > limits.prompt_tokens
        left = min(limits.context_tokens - n, limits.response_tokens - (n - opening))
        if too_long or left < 1:
            most = limits.prompt_tokens if too_long else n + left
            raise self._too_long(
                f"This model's maximum context length is {most} tokens. However, your messages "
                f"resulted in {n} tokens. Please reduce the length of the messages.",
                tokens=(n, most),
            )
        return min(left, limits.reply_tokens or left)
