"""An agent's session with a back end: it evaluates the model that a training would train."""

from __future__ import annotations

import asyncio
from typing import Any

from coding_model_project.episodes.bash import ContextOverflow
from coding_model_project.evaluation.backends.generation import Backend, Sampling
from coding_model_project.harbor.evaluation.agent_model import Seeded
from coding_model_project.harbor.gateway.agent_session import AgentSession, Limits, Pending
from coding_model_project.harbor.gateway.recorder import Generated, Turn
from coding_model_project.harbor.gateway.requests import (
    Ask,
    Ended,
    RequestError,
    read_reply,
)

_REFUSED_SOON_S = 2.0
"""Seconds in which a server refuses a request; then a client's stream begins."""


class ServedSession(AgentSession):
    """An agent whose replies are a back end's. `more` are options of `AgentSession`.

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
            dropped=0,
            added=(),
            generated=Generated(ids=(), log_probs=None),
            said=place.new,
            tools=ask.tools,
            answer=answer,
            text=text,
        )
