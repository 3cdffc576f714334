"""An agent's session with a policy, whose tokens are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from coding_model_project.episodes.tool_calls import for_template
from coding_model_project.harbor.gateway import requests
from coding_model_project.harbor.gateway.agent_session import AgentSession, Limits, Pending
from coding_model_project.harbor.gateway.recorder import Generated, Place, Turn
from coding_model_project.harbor.gateway.requests import Ask, Message, RequestError, read_reply


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
        for tried in (messages, [messages[0], *map(_as_user, messages[1:])]):
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


def _as_user(message: Message) -> Message:
    return {**message, "role": "user"} if message["role"] == "system" else message
