"""Completions: what is asked for and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from coding_model_project.grading.prompts import Message

Messages = list[Message]
"""A conversation: `{"role": ..., "content": ...}`, the last one the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are drawn. Temperature 0 is greedy."""

    n: int = 1
    temperature: float = 0.0
    max_tokens: int = 1024
    top_p: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    n_tokens: int
    truncated: bool = False
    """Ended by the token limit and not by the model."""
    n_prompt_tokens: int | None = None
    """Of what was asked, where a server says so."""


class Backend(Protocol):
    """Something that answers conversations: an engine or a server. Entered before use."""

    concurrency: int
    """Requests at once that keep it busy."""

    @property
    def identity(self) -> str:
        """What it is, for the record.

        Raises:
            ConfigError: it is not installed.
        """
        ...

    @property
    def repeatable(self) -> bool:
        """Whether the same request with the same seed gives the same completion."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """One completion; `sampling.n` does not apply.

        Raises:
            GenerationError: it does not answer, after retries. Never an empty completion.
            PromptError: it cannot answer this conversation, which is too long for the model.
            ConfigError: it refuses this client or these settings.
        """
        ...
