"""A generation back end as the model of Harbor's bash agent, its failures by Harbor's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from coding_model_project.episodes.bash import ContextOverflow, Reply
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.episodes.tool_calls import parse
from coding_model_project.errors import GenerationError, HarborError, PromptError
from coding_model_project.evaluation.backends.generation import Backend, Sampling
from coding_model_project.grading.prompts import Message

_TOO_LONG = re.compile(r"context|too (long|large)|max_tokens|maximum.*tokens", re.IGNORECASE)
"""In what a server says of a conversation that has no room for an answer."""

_SEEDS_OF_AN_ATTEMPT = 100_000


class ModelUnreachable(HarborError):
    """The endpoint gave no answer, after retries."""

    harbor_name = "APIConnectionError"


class ModelRefused(HarborError):
    """The endpoint refuses a conversation, and not for its length."""

    harbor_name = "BadRequestError"


class BackendModel:
    """See `episodes.bash.Model`. One for each trial, since it counts.

    Args:
        backend: sends `tools`, in form `tools`.
        attempt: which of a task's attempts this is; its turns have seeds of their own.
        calls: in form `tools`, calls are the server's, or else those in the text of a server that takes
            no replies apart.
    """

    def __init__(
        self, backend: Backend, sampling: Sampling, attempt: int, calls: Calls = Calls.block
    ) -> None:
        self._backend, self._sampling, self._calls = backend, sampling, calls
        self._seed = attempt * _SEEDS_OF_AN_ATTEMPT
        self.prompt_tokens: list[int] = []
        """Of each reply, where the server says so."""

    async def reply(self, messages: Sequence[Message], max_tokens: int | None) -> Reply:
        """See `Model.reply`.

        Raises:
            ContextOverflow, ModelRefused, ModelUnreachable: by what the endpoint says.
            ConfigError: it will answer nothing that is asked like this.
        """
        most = self._sampling.max_tokens
        sampling = replace(self._sampling, max_tokens=min(most, max_tokens or most))
        self._seed += 1
        try:
            made = await self._backend.complete(list(messages), sampling, self._seed)
        except PromptError as error:
            if _TOO_LONG.search(str(error)):
                raise ContextOverflow(str(error)) from error
            raise ModelRefused(str(error)) from error
        except GenerationError as error:
            raise ModelUnreachable(str(error)) from error
        self.prompt_tokens.append(made.n_prompt_tokens or 0)
        text, calls = made.text, made.tool_calls
        if self._calls is Calls.block:
            calls = ()
        elif not calls:
            parsed = parse(made.text)
            text, calls = parsed.content or "", parsed.calls
        return Reply(text=text, tokens=made.n_tokens, cut=made.truncated, calls=calls)
