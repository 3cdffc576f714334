"""Probes that show whether a server honours the sampling options, sent before all other requests.

Servers ignore unknown fields. Two symptoms reveal this:

1. The server accepts an impossible value (`min_p=7`), which a server that reads the field rejects.
2. Its answers differ although the option allows only one answer (`top_k=1`, `min_p=1`).

The second symptom is refused; the first alone gives a note.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import Messages, Sampling

MESSAGES: Messages = [{"role": "user", "content": "Write twelve random words."}]
TOKENS = 24
"""Maximum tokens of a probe's answer."""

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
"""Values without an effect, which a server may ignore."""
_ONE_ANSWER: Mapping[str, Any] = {"top_k": 1, "min_p": 1.0}
"""Values that allow only the likeliest token, at any temperature."""
_SEEDS = (1, 2, 3)
_REFUSED = (400, 413, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's answer to a probe."""

    status: int
    text: str
    """Reasoning and answer; empty if the probe was rejected."""


Ask = Callable[[Mapping[str, Any]], Awaitable[Reply]]
"""Function that sends a request with these fields, model, messages and token limit only."""


async def probe(ask: Ask, sampling: Sampling, url: str, *, draws: bool) -> list[str]:
    """Find the options that a server ignores. Sends nothing if no option has an effect.

    Args:
        url: the server's URL, for messages.
        draws: the server accepts a temperature, which the second probe needs.

    Returns:
        Notes on options that the server may ignore.

    Raises:
        ConfigError: the server ignores an option; names it.
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
                f"allows one; remove it (coding.evaluation.{name}, --{name.replace('_', '-')}), or "
                "use a server that supports it"
            )
        if reads is None:
            notes.append(
                f"{url} may ignore `{name}`: it accepts the invalid value {name}={_IMPOSSIBLE[name]!r}"
            )
    return notes


async def _reads(ask: Ask, name: str) -> bool | None:
    """Return whether the option has an effect, or None if the answers do not show it."""
    hot = {"temperature": 2.0, "top_p": 1.0}
    free = {(await ask({**hot, "seed": seed})).text for seed in _SEEDS}
    bound = {(await ask({**hot, name: _ONE_ANSWER[name], "seed": seed})).text for seed in _SEEDS}
    if len(bound) == len(_SEEDS):  # all differ: more than a tie of rounded sums
        return False
    return True if len(bound) == 1 and len(free) > 1 else None
