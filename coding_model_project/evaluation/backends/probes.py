"""Questions that show if a server reads the sampling options that it is sent; asked before all others.

Servers pass over fields that they do not know. Two things betray one:

1. It takes a value that is impossible (`min_p=7`): whoever reads the field refuses it.
2. It answers differently each time where the option leaves one answer (`top_k=1`, `min_p=1`).

What the second shows is refused; what only the first hints at is a note.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import Messages, Sampling

MESSAGES: Messages = [{"role": "user", "content": "Write twelve random words."}]
TOKENS = 24
"""Longest answer to a probe."""

_IMPOSSIBLE: Mapping[str, Any] = {
    "top_k": -7,
    "min_p": 7.0,
    "presence_penalty": 99.0,
    "frequency_penalty": 99.0,
    "repetition_penalty": -1.0,
    "stop": {"no": "text"},
    "chat_template_kwargs": "no object",
}
_OFF: Mapping[str, float] = {
    "top_k": -1,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""Values without an effect, which a server may well pass over."""
_ONE_ANSWER: Mapping[str, Any] = {"top_k": 1, "min_p": 1.0}
"""Values that leave only the likeliest token, at whatever temperature."""
_SEEDS = (1, 2, 3)
_REFUSED = (400, 413, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's answer to a probe."""

    status: int
    text: str
    """Reasoning and answer; empty if it was refused."""


Ask = Callable[[Mapping[str, Any]], Awaitable[Reply]]
"""Sends one request with these fields and no others but model, messages and the longest answer."""


async def probe(ask: Ask, sampling: Sampling, url: str, *, draws: bool) -> list[str]:
    """Find the options that a server ignores. Sends nothing where none has an effect.

    Args:
        url: the server's, for messages.
        draws: it takes a temperature, without which the second question cannot be asked.

    Returns:
        Notes on options that it may ignore.

    Raises:
        ConfigError: it ignores one; names it.
    """
    notes = []
    for name, value in sampling.optional().items():
        if name in _OFF and value == _OFF[name]:
            continue
        reply = await ask({name: _IMPOSSIBLE[name]})
        if reply.status in _REFUSED:
            continue
        reads = await _reads(ask, name) if draws and name in _ONE_ANSWER else None
        if reads is False:
            raise ConfigError(
                f"{url} ignores `{name}`: three answers differ at {name}={_ONE_ANSWER[name]}, which "
                f"leaves one; remove it (coding.evaluation.{name}, --{name.replace('_', '-')}) or use "
                "a server that has it"
            )
        if reads is None:
            notes.append(
                f"{url} may ignore `{name}`: it takes {name}={_IMPOSSIBLE[name]!r}, which is "
                "impossible, without an error"
            )
    return notes


async def _reads(ask: Ask, name: str) -> bool | None:
    """Return true if the option leaves one answer, false if it leaves many; None if it cannot be told."""
    hot = {"temperature": 2.0, "top_p": 1.0}
    free = {(await ask({**hot, "seed": seed})).text for seed in _SEEDS}
    bound = {(await ask({**hot, name: _ONE_ANSWER[name], "seed": seed})).text for seed in _SEEDS}
    if len(bound) == len(_SEEDS):  # not one pair is equal: no tie of rounded sums
        return False
    return True if len(bound) == 1 and len(free) > 1 else None
