"""A generation back end behind agents: the bash agent's model, and the session of any other agent.

The requests of an attempt have seeds of their own, and errors have Harbor's names.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coding_model_project.episodes.bash import Calls, ContextOverflow, Reply
from coding_model_project.episodes.tool_calls import parse
from coding_model_project.errors import GenerationError, HarborError, PromptError
from coding_model_project.evaluation.backends.generation import Backend, Completion, Sampling
from coding_model_project.grading.prompts import Message
from coding_model_project.harbor.gateway.recorder import Turn
from coding_model_project.harbor.gateway.requests import Ask, Ended, RequestError, read_reply
from coding_model_project.harbor.gateway.session import AgentSession, Limits, Pending

_TOO_LONG = re.compile(r"context|too (long|large)|max_tokens|maximum.*tokens|limit is", re.I)
"""A pattern of errors about conversations that leave no room for an answer."""

_SEEDS_OF_AN_ATTEMPT = 100_000
_REFUSED_SOON_S = 2.0
"""Seconds in which a server refuses a request; then a client's stream begins."""


class ModelUnreachable(HarborError):
    """An endpoint that did not answer, after retries."""

    harbor_name = "APIConnectionError"


class ModelRefused(HarborError):
    """A conversation that the endpoint rejects for another reason than its length."""

    harbor_name = "BadRequestError"


class Seeded:
    """A back end whose requests of one attempt have seeds of their own."""

    def __init__(self, backend: Backend, attempt: int) -> None:
        self._backend, self._seed = backend, attempt * _SEEDS_OF_AN_ATTEMPT

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        max_tokens: int | None,
        *,
        stop: Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Completion:
        """Generate one completion, of at most `max_tokens` and at most `sampling.max_tokens` tokens.

        Raises:
            ContextOverflow: the conversation leaves no room for an answer.
            ModelRefused: the endpoint rejects the conversation for another reason.
            ModelUnreachable: the endpoint did not answer.
            ConfigError: the endpoint rejects all requests with these settings.
        """
        most = sampling.max_tokens
        sampling = replace(
            sampling,
            max_tokens=min(most, max_tokens or most),
            stop=tuple(stop),
            tools=tuple(tools),
        )
        self._seed += 1
        try:
            return await self._backend.complete(list(messages), sampling, self._seed)
        except PromptError as error:
            if _TOO_LONG.search(str(error)):
                raise ContextOverflow(str(error)) from error
            raise ModelRefused(str(error)) from error
        except GenerationError as error:
            raise ModelUnreachable(str(error)) from error


class BackendModel:
    """A back end as `episodes.bash.Model`. One instance per trial, because it counts replies.

    Args:
        attempt: the number of the task's attempt; its turns have seeds of their own.
        calls: in form `tools`, the server's parsed calls are used, or else calls parsed from the text.
    """

    def __init__(
        self, backend: Backend, sampling: Sampling, attempt: int, calls: Calls = Calls.block
    ) -> None:
        self._model, self._sampling, self._calls = Seeded(backend, attempt), sampling, calls

    async def reply(self, messages: Sequence[Message], max_tokens: int | None) -> Reply:
        """See `Model.reply`.

        Raises:
            ContextOverflow, ModelRefused, ModelUnreachable, ConfigError: as `Seeded.complete`.
        """
        tools = self._calls.schemas or ()
        made = await self._model.complete(messages, self._sampling, max_tokens, tools=tools)
        text, calls = made.text, () if self._calls is Calls.block else made.tool_calls
        if tools and not calls:
            parsed = parse(made.text)
            text, calls = parsed.content or "", parsed.calls
        return Reply(
            text=text,
            tokens=made.n_tokens,
            prompt_tokens=made.n_prompt_tokens or 0,
            cut=made.truncated,
            calls=calls,
        )


class ServedSession(AgentSession):
    """A session of an agent whose replies are a back end's. `more` are options of `AgentSession`.

    The model sees the conversation as a training's policy does: with the replies as they were recorded.

    Args:
        attempt: the number of the task's attempt; its replies have seeds of their own.
    """

    def __init__(
        self, backend: Backend, sampling: Sampling, attempt: int, limits: Limits, **more: Any
    ) -> None:
        super().__init__(limits, **more)
        self._model, self._sampling = Seeded(backend, attempt), sampling

    async def _count(self, ask: Ask) -> int:
        raise RequestError("the model's server does not count tokens", status=404)

    async def _reply(self, ask: Ask, pending: Pending) -> Turn:
        place = pending.place
        asking = asyncio.ensure_future(
            self._model.complete(
                place.messages,
                self._sampling,
                ask.max_tokens,
                stop=ask.stop,
                tools=ask.tools if ask.calls_tools else (),
            )
        )
        await asyncio.wait((asking,), timeout=_REFUSED_SOON_S)
        if not asking.done():
            self._accept(pending, 0)
        try:
            made = await asking
        except ContextOverflow as error:
            raise self._too_long(f"This model's maximum context length: {error}") from error
        n_prompt = made.n_prompt_tokens or 0
        if not pending.prompt_tokens.done():
            self._accept(pending, n_prompt)
        answer, text = read_reply(
            ask,
            made.text,
            thought=made.reasoning,
            calls=made.tool_calls,
            ended=Ended.length if made.truncated else Ended.model,
            prompt_tokens=n_prompt,
            completion_tokens=made.n_tokens,
        )
        return Turn(
            parent=place.after,
            said=place.new,
            tools=ask.tools,
            answer=answer,
            text=text,
        )
