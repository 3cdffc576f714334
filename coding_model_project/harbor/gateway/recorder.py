"""One agent's conversations as a tree of turns, and the training trajectories made from it.

    opening | reply | added messages | reply …          one conversation
                    └ other messages | reply …          a second one: the client went back

A turn holds the exact tokens of the model's prompt and reply; text is never tokenized a second time. A
client that goes back, drops messages or rewrites them starts another branch, or another tree. Each
generated token belongs to one turn, and one trajectory trains on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.harbor.gateway.requests import Ask, Message, digests


class Ended(StrEnum):
    """The cause of a reply's end."""

    model = "model"
    """The model ended it."""
    length = "length"
    stop = "stop"
    """It reached one of the client's `stop` texts."""


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
    dropped: int
    """Tokens removed from the end of the parent's: some templates begin the next message with the
    tokens that end a reply."""
    added: tuple[int, ...]
    """Template tokens: a conversation's opening, or the messages since the parent's reply."""
    generated: Generated

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
    known: int
    """The number of messages that this turn's tokens cover."""
    at: bytes
    """The digest of the request's whole conversation."""


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
        self._at: dict[bytes, Turn] = {}
        self.turns: list[Turn] = []

    def find(self, ask: Ask) -> Place:
        """Find the longest recorded conversation that a request continues."""
        chain = digests(ask.tools, ask.messages)
        for known in range(len(ask.messages) - 1, 0, -1):
            if (turn := self._at.get(chain[known])) is not None:
                return Place(after=turn, known=known, at=chain[-1])
        return Place(after=None, known=0, at=chain[-1])

    def add(
        self,
        ask: Ask,
        place: Place,
        *,
        dropped: int,
        added: Sequence[int],
        generated: Generated,
        reply: Message,
    ) -> Turn:
        """Record a reply.

        Args:
            reply: the message that the client gets and may send back.
        """
        turn = Turn(parent=place.after, dropped=dropped, added=tuple(added), generated=generated)
        self._at[digests(ask.tools, [*ask.messages, reply])[-1]] = turn
        self.turns.append(turn)
        return turn

    def trajectories(self, at_most: int) -> list[Trajectory]:
        """Return the conversations, the one with the most generated tokens last.

        Args:
            at_most: most conversations; those with the fewest generated tokens are dropped.
        """
        parents = {id(turn.parent) for turn in self.turns}
        leaves = [turn for turn in self.turns if id(turn) not in parents]
        leaves.sort(key=_generated, reverse=True)
        seen: set[int] = set()
        found = [_trajectory(leaf, seen) for leaf in leaves[:at_most]]
        return found[::-1]

    @property
    def n_generated(self) -> int:
        """The number of generated tokens in all turns."""
        return sum(len(turn.generated.ids) for turn in self.turns)


def _generated(leaf: Turn) -> int:
    return sum(len(turn.generated.ids) for turn in leaf.path())


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
        for token, trained, log_prob in _columns(turn, trained=id(turn) not in seen):
            ids.append(token)
            mask.append(trained)
            log_probs.append(log_prob)
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


def _columns(turn: Turn, *, trained: bool) -> Iterator[tuple[int, int, float]]:
    """Yield a turn's tokens with their mask and log-probability, which is 0 where the mask is 0."""
    for token in turn.added:
        yield token, 0, 0.0
    log_probs = turn.generated.log_probs or (0.0,) * len(turn.generated.ids)
    for token, log_prob in zip(turn.generated.ids, log_probs, strict=True):
        yield token, int(trained), log_prob if trained else 0.0
