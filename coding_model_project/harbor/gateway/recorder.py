"""One agent's conversations as a tree of turns, and the training trajectories made from it.

    opening | reply | added messages | reply …          one conversation
                    └ other messages | reply …          a second one: the client went back

A turn holds the exact tokens of the model's prompt and reply; text is never tokenized a second time. A
client that goes back, drops messages or rewrites them starts another branch, or another tree. Each
generated token belongs to one turn, and one trajectory trains on it.

Clients move, drop or re-space the thought, drop the text beside calls, write arguments anew, cut a reply
or add to it. A reply is known by the ids of its calls, which the gateway made; then by its text after the
thought, and its calls; then by a beginning that both texts share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coding_model_project import strict_json
from coding_model_project.episodes.tool_calls import split_thought
from coding_model_project.harbor.gateway.requests import Answer, Ask, Ended, Message

_DIGEST_BYTES = 16
_SAME_IDS, _SAME_TEXT, _BEGINNING = 3, 2, 1
_Seen = tuple[frozenset[str], list[tuple[str, str]], list[str], str, list[str]]


def best(sent: Message, turns: Sequence[Turn]) -> tuple[Turn, str] | None:
    """Return the turn whose reply an assistant's message is most likely to be, the latest of equal ones,
    and the text that the client added to it.
    """
    seen = _seen(sent)  # once: it may be long
    ranked = [(rank, one) for one in reversed(turns) if (rank := _rank(seen, one)) is not None]
    if not ranked:
        return None
    (kind, *_), turn = max(ranked, key=lambda one: one[0])
    return turn, _added(sent, turn) if kind == _BEGINNING else ""


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


def _rank(seen: _Seen, turn: Turn) -> tuple[int, bool, int] | None:
    """Return how well a message matches a reply; None if it does not."""
    ids, calls, thought, text, words = seen
    own_ids, own_calls, own_thought, own, own_words = _seen(turn.answer.message)
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
    # As any client may write them: numbers as JavaScript's, no arguments that are null.
    calls = [(one["name"], _same_json(one["arguments"], _loose)) for one in _functions(message)]
    return ids, calls, thought.split(), text, text.split()


def _added(sent: Message, turn: Turn) -> str:
    """Return what a client's text has after a reply's, whose stop text it may have put back."""
    _, text = _parts(sent)
    _, own = _parts(turn.answer.message)
    for beginning in (turn.text.strip(), own):
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


def _loose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _loose(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_loose(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One reply of a policy."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    """One per id; None if the policy does not report them."""
    ended: Ended = Ended.model


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """A reply, and the tokens added to the conversation before it."""

    parent: Turn | None
    dropped: int = 0
    """Tokens removed from the end of the parent's: some templates begin the next message with the
    tokens that end a reply."""
    added: tuple[int, ...] = ()
    """Template tokens: a conversation's opening, or the messages since the parent's reply."""
    generated: Generated = Generated(ids=(), log_probs=None)
    """Empty for a served model, whose tokens nobody trains on."""
    said: tuple[Message, ...]
    """The messages of `added`."""
    tools: tuple[Mapping[str, Any], ...]
    answer: Answer
    text: str
    """The reply's text after the thought with the stop text that the client did not receive."""

    def path(self) -> list[Turn]:
        """Return the turns from the conversation's opening to this one."""
        turns, turn = [], self
        while turn is not None:
            turns.append(turn)
            turn = turn.parent
        return turns[::-1]

    def ids(self) -> list[int]:
        """Return all tokens of the conversation up to this turn's reply."""
        ids: list[int] = []
        for turn in self.path():
            del ids[len(ids) - turn.dropped :]
            ids += turn.added
            ids += turn.generated.ids
        return ids

    @property
    def n_opening(self) -> int:
        """The number of tokens in the conversation's opening."""
        return len(self.path()[0].added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The point at which a request continues a recorded conversation."""

    after: Turn | None
    """None if it begins a conversation."""
    messages: tuple[Message, ...]
    """The request's, with recorded replies in place of what the client sent for them."""
    known: int
    """The number of these messages that the turn's tokens cover."""
    at: bytes
    """The digest of the whole conversation."""

    @property
    def new(self) -> tuple[Message, ...]:
        """The messages that the turn's tokens do not cover."""
        return self.messages[self.known :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A conversation in the form used for training."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    """1 for each generated token of a turn that no other trajectory trains on, else 0."""
    log_probs: list[float] | None
    spans: list[tuple[int, int]]
    """Start and end of each reply in the response, including those that others train on."""

    @property
    def trained(self) -> int:
        """The number of tokens in the loss."""
        return sum(self.mask)


class Recorder:
    """The turns of one agent."""

    def __init__(self) -> None:
        self._replies: dict[bytes, list[Turn]] = {}
        """The turns that replied to a conversation, by its digest."""
        self.turns: list[Turn] = []

    def find(self, ask: Ask) -> Place:
        """Find the longest recorded conversation that a request continues."""
        at = digest(b"", [json.dumps(tool, sort_keys=True) for tool in ask.tools])
        after, known = None, 0
        messages: list[Message] = []
        for sent in ask.messages:
            found = None
            if sent["role"] == "assistant":
                found = best(sent, self._replies.get(at, ()))
            turn, added = found or (None, "")
            messages.append(sent if turn is None else turn.answer.message)
            at = digest(at, identity(messages[-1]))
            if turn is not None:
                after, known = turn, len(messages)
            if added:
                messages.append({"role": "assistant", "content": added})
                at = digest(at, identity(messages[-1]))
        return Place(after=after, messages=tuple(messages), known=known, at=at)

    def add(self, place: Place, turn: Turn) -> None:
        """Record a reply."""
        self._replies.setdefault(place.at, []).append(turn)
        self.turns.append(turn)

    def ends(self, *, only_tools: bool = False) -> list[Turn]:
        """Return the last turn of each conversation, first of that with the most generated tokens.

        Args:
            only_tools: leave out those that were offered no tools.
        """
        turns = [turn for turn in self.turns if turn.tools or not only_tools]
        parents = {id(turn.parent) for turn in turns}
        ends = [turn for turn in turns if id(turn) not in parents]
        return sorted(ends, key=lambda one: _generated(one.path()), reverse=True)

    def trajectories(self, at_most: int, *, only_tools: bool = False) -> list[Trajectory]:
        """Return the conversations, the one with the most generated tokens last.

        Args:
            at_most: most conversations; those with the fewest generated tokens are dropped.
            only_tools: see `ends`.
        """
        seen: set[int] = set()
        ends = self.ends(only_tools=only_tools)[:at_most]
        return [_trajectory(end, seen) for end in ends][::-1]

    @property
    def n_generated(self) -> int:
        """The number of generated tokens in all turns."""
        return _generated(self.turns)


def _generated(turns: Sequence[Turn]) -> int:
    return sum(turn.answer.completion_tokens for turn in turns)


def _trajectory(leaf: Turn, seen: set[int]) -> Trajectory:
    """Make a conversation's trajectory.

    Args:
        seen: ids of turns that other trajectories train on; this one's are added.
    """
    path = leaf.path()
    ids: list[int] = []
    mask: list[int] = []
    log_probs: list[float] = []
    spans: list[tuple[int, int]] = []
    for turn in path:
        for column in (ids, mask, log_probs):
            del column[len(column) - turn.dropped :]
        if turn.dropped:
            spans[-1] = (spans[-1][0], len(ids))
        own, n, trained = turn.generated, len(turn.generated.ids), id(turn) not in seen
        ids += (*turn.added, *own.ids)
        mask += (*[0] * len(turn.added), *[int(trained)] * n)
        given = own.log_probs if trained and own.log_probs is not None else [0.0] * n
        assert len(given) == n
        log_probs += (*[0.0] * len(turn.added), *given)
        spans.append((len(ids) - len(turn.generated.ids), len(ids)))
        seen.add(id(turn))
    n = leaf.n_opening
    has_log_probs = all(turn.generated.log_probs is not None for turn in path)
    return Trajectory(
        prompt=ids[:n],
        response=ids[n:],
        mask=mask[n:],
        log_probs=log_probs[n:] if has_log_probs else None,
        spans=[(start - n, end - n) for start, end in spans],
    )
