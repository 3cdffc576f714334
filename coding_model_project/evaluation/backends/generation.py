"""The back end protocol, with its sampling options and completions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from coding_model_project.episodes.tool_calls import ToolCall
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import Message

Messages = list[Message]
"""A conversation of `{"role": ..., "content": ...}`, ending with the user's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling options, the same for every back end. Temperature 0 is greedy.

    Options that are None are not sent: an engine in this process ignores them, a server uses its own
    default (vLLM's servers use the model's `generation_config.json`).
    """

    n: int = 1
    temperature: float = 0.0
    max_tokens: int = 1024
    """Maximum completion length in tokens, including reasoning."""
    top_p: float = 1.0
    top_k: int | None = None
    """Sample from this many of the likeliest tokens; -1 for all."""
    min_p: float | None = None
    """Drop tokens below this share of the likeliest token's probability."""
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()
    """Texts that end a completion; they are excluded from it."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the model's chat template, such as {"enable_thinking": False}."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that the model may call, in the form of chat completions."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` if an option is out of its range."""
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(
                    f"coding.evaluation.{name}={value:g}: must be from {low:g} to {high:g}"
                )
        if self.top_k is not None and self.top_k < 1 and self.top_k != -1:
            raise ConfigError(
                f"coding.evaluation.top_k={self.top_k}: must be at least 1, or -1 for all tokens"
            )
        if "" in self.stop:
            raise ConfigError(
                "coding.evaluation.stop: an empty text would end every completion; remove it"
            )

    def optional(self) -> dict[str, Any]:
        """Return the set options by name, without temperature, top_p and max_tokens."""
        chosen = {name: getattr(self, name) for name in _SENT_IF_SET}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in chosen.items()
            if value is not None and value != () and value != {}
        }

    def described(self) -> dict[str, Any]:
        """Return the options for a protocol's record and hash, without optional ones that are not set."""
        named = asdict(self)
        return {k: v for k, v in named.items() if k not in _SENT_IF_SET} | self.optional()


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("top_p", 1e-9, 1.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", 1e-9, 2.0),
)
"""Options with the smallest and largest values that back ends accept."""

OPTIONAL = (
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "chat_template_kwargs",
)
"""Fields of `Sampling` that a user may set, and that are sent only then."""
_SENT_IF_SET = (*OPTIONAL, "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    n_tokens: int
    truncated: bool = False
    """True if the token limit cut it off."""
    n_prompt_tokens: int | None = None
    """Tokens of the prompt, if a server reports them."""
    reasoning: str = ""
    """Reasoning text, if the back end returns it separately; not part of `text`."""
    n_reasoning_tokens: int | None = None
    """Reasoning tokens, included in `n_tokens`; None if the back end does not count them."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Parsed tool calls of a server that was sent `tools`, separate from `text`."""


class Backend(Protocol):
    """An engine or server that generates completions. Enter it before use."""

    concurrency: int
    """Concurrent requests that keep the back end busy."""

    @property
    def identity(self) -> str:
        """Name and version, for the record.

        Raises:
            ConfigError: the back end is not installed.
        """
        ...

    @property
    def repeatable(self) -> bool:
        """True if the same request with the same seed gives the same completion."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    async def check(self, sampling: Sampling) -> Sequence[str]:
        """Refuse options that this back end ignores; called once, before any completion.

        Returns:
            Notes on options that may have no effect.

        Raises:
            ConfigError: an option has no effect here; names it.
            GenerationError: as `complete`.
        """
        ...

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """Generate one completion; ignores `sampling.n`.

        Raises:
            GenerationError: the back end does not answer after retries. Never an empty completion.
            PromptError: the conversation is too long for the model.
            ConfigError: the back end refuses this client or these settings.
        """
        ...


def refuse_unknown_variables(template: str, model: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse variables that a chat template would silently ignore.

    Raises:
        ConfigError: the template does not use a variable; names it.
    """
    for name in kwargs:
        if not re.search(rf"\b{re.escape(name)}\b", template):
            raise ConfigError(
                f"coding.evaluation.chat_template_kwargs: the chat template of {model} has no "
                f"variable {name!r}, so it has no effect; remove it (--chat-template-kwargs)"
            )


def count_reasoning(
    prompt_ids: Sequence[int], output_ids: Sequence[int], *, opens: int | None, closes: int | None
) -> int | None:
    """Count the tokens of an output's reasoning, including its closing mark.

    Args:
        prompt_ids: tokens of the prompt; some templates open the reasoning at its end.
        opens: id of the token `<think>`; None if the model has no such token.
        closes: id of the token `</think>`.

    Returns:
        None if the model has no such tokens.
    """
    if closes is None:
        return None
    if closes in output_ids:
        return list(output_ids).index(closes) + 1
    in_prompt = [one for one in prompt_ids if one in (opens, closes)]
    opened = opens in output_ids or bool(in_prompt and in_prompt[-1] == opens)
    return len(output_ids) if opened and opens is not None else 0


def reasoning_marks(tokenizer: Any) -> tuple[int | None, int | None]:
    """Return the ids of the tokens `<think>` and `</think>`, or None for missing ones."""
    known = tokenizer.get_vocab()
    return known.get("<think>"), known.get("</think>")
