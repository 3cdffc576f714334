"""A generation back end as the bash agent's model. Its errors have Harbor's names."""

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
"""A pattern of servers' errors about conversations that leave no room for an answer."""

_SEEDS_OF_AN_ATTEMPT = 100_000


class ModelUnreachable(HarborError):
    """An endpoint that did not answer, after retries."""

    harbor_name = "APIConnectionError"


class ModelRefused(HarborError):
    """A conversation that the endpoint rejects for another reason than its length."""

    harbor_name = "BadRequestError"


class BackendModel:
    """A back end as `episodes.bash.Model`. One instance per trial, because it counts replies and tokens.

    Args:
        backend: sends `tools`, in form `tools`.
        attempt: the number of the task's attempt; its turns have seeds of their own.
        calls: in form `tools`, the server's parsed calls are used, or else calls parsed from the text.
    """

    def __init__(
        self, backend: Backend, sampling: Sampling, attempt: int, calls: Calls = Calls.block
    ) -> None:
        self._backend, self._sampling, self._calls = backend, sampling, calls
        self._seed = attempt * _SEEDS_OF_AN_ATTEMPT
        self.prompt_tokens: list[int] = []
        """Prompt tokens of each reply; 0 if the server does not report them."""

    async def reply(self, messages: Sequence[Message], max_tokens: int | None) -> Reply:
        """See `Model.reply`.

        Raises:
            ContextOverflow: the conversation leaves no room for an answer.
            ModelRefused: the endpoint rejects the conversation for another reason.
            ModelUnreachable: the endpoint did not answer.
            ConfigError: the endpoint rejects all requests with these settings.
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
