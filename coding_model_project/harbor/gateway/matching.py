"""Recognition of recorded replies in what clients send back.

Clients move, drop or re-space the thought, drop the text beside calls, write arguments anew, cut a reply
or add to it. A reply is known by the ids of its calls, which the gateway made; then by its text after the
thought, and its calls; then by a beginning that both texts share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coding_model_project import strict_json
from coding_model_project.episodes.tool_calls import split_thought
from coding_model_project.harbor.gateway.requests import Message
from coding_model_project.harbor.harbor_config import History

_DIGEST_BYTES = 16
_SAME_IDS, _SAME_TEXT, _BEGINNING = 3, 2, 1
_Seen = tuple[frozenset[str], list[tuple[str, str]], list[str], str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A recorded reply."""

    message: Message
    """As the client received it."""
    text: str
    """Its text after the thought with the stop text that the client did not receive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A reply that a client sent back."""

    reply: Reply
    added: str
    """The text that the client added to it."""


def best(sent: Message, replies: Sequence[Reply], history: History) -> Found | None:
    """Return the reply that an assistant's message is most likely to be, the latest of equal ones.

    Args:
        history: `sent` accepts only replies whose thought, text and calls are unchanged.
    """
    if history is History.sent:
        same = identity(sent)
        exact = [one for one in replies if identity(one.message) == same]
        return Found(reply=exact[-1], added="") if exact else None
    seen = _seen(sent)  # once: it may be long
    ranked = [(rank, one) for one in reversed(replies) if (rank := _rank(seen, one)) is not None]
    if not ranked:
        return None
    (kind, *_), reply = max(ranked, key=lambda one: one[0])
    return Found(reply=reply, added=_added(sent, reply) if kind == _BEGINNING else "")


def identity(message: Message) -> list[Any]:
    """Return what a model sees of a message.

    Ids of calls, the order of keys in arguments, and space around an assistant's text make no difference.
    """
    role = message["role"]
    if role != "assistant":
        return [role, message.get("content") or ""]
    thought, text = _parts(message)
    calls = [[one["name"], _same_json(one["arguments"])] for one in _functions(message)]
    return [role, thought, text, calls]


def digest(before: bytes, what: list[Any]) -> bytes:
    """Return the digest of a conversation after one more message."""
    return hashlib.blake2b(before + json.dumps(what).encode(), digest_size=_DIGEST_BYTES).digest()


def _rank(seen: _Seen, reply: Reply) -> tuple[int, bool, int] | None:
    """Return how well a message matches a reply; None if it does not."""
    ids, calls, thought, text, words = seen
    own_ids, own_calls, own_thought, own, own_words = _seen(reply.message)
    same_thought = thought == own_thought
    if ids and ids <= own_ids:
        return _SAME_IDS, same_thought, len(ids)
    if calls != own_calls:
        return None
    every = thought + words  # some take all for a thought, or for text
    if own_words in (words, every) or every == own_thought + own_words or (calls and not text):
        return _SAME_TEXT, same_thought, len(words)
    if text and own and (text.startswith(own) or own.startswith(text)):
        return _BEGINNING, same_thought, min(len(text), len(own))
    return None


def _seen(message: Message) -> _Seen:
    """Return ids, calls, words of the thought, the text, and its words."""
    thought, text = _parts(message)
    ids = frozenset(call["id"] for call in message.get("tool_calls", ()))
    return ids, _loose_calls(message), thought.split(), text, text.split()


def _added(sent: Message, reply: Reply) -> str:
    """Return what a client's text has after a reply's, whose stop text it may have put back."""
    _, text = _parts(sent)
    _, own = _parts(reply.message)
    for beginning in (reply.text.strip(), own):
        if text.startswith(beginning):
            return text[len(beginning) :].strip()
    return ""


def _parts(message: Message) -> tuple[str, str]:
    """Return an assistant's thought and text, wherever the client keeps its thought."""
    content = message.get("content") or ""
    if thought := message.get("reasoning_content"):
        return thought.strip(), content.strip()
    thought, text = split_thought(content)
    return thought, text.strip()


def _functions(message: Message) -> list[dict[str, Any]]:
    return [call["function"] for call in message.get("tool_calls", ())]


def _same_json(text: str, change: Callable[[Any], Any] = lambda value: value) -> str:
    try:
        return json.dumps(change(strict_json.loads(text)), sort_keys=True)
    except (ValueError, OverflowError):
        return text.strip()


def _loose_calls(message: Message) -> list[tuple[str, str]]:
    """Return calls as any client may write them: numbers as JavaScript's, no arguments that are null."""
    return [(one["name"], _same_json(one["arguments"], _loose)) for one in _functions(message)]


def _loose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _loose(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_loose(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
