"""A pool of judges on several nodes, which may fail, die and recover.

Work goes to the node that its key hashes to, so that the cache there sees all samples of a problem. An
idle node takes work from the longest queue. A failed or dead node gets no work until it judges again,
since a node with an open breaker would answer fastest and attract all work. Its work goes to other nodes.
`verl_ext.cluster.node_judges` implements the calls to nodes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, Self, TypeVar

from coding_model_project.errors import SandboxError
from coding_model_project.grading.limiter import CircuitBreaker

MAX_TRIES = 3
"""Number of nodes that fail at a piece of work before the work itself fails."""

MAX_STRIKES = 3
"""Number of failures at work that another node then did, after which a node is excluded for good."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 60.0
"""Seconds between attempts to revive a node."""


class Node(Protocol):
    """A node's judge, as called by the driver."""

    name: str
    """Its host, for messages."""
    at_once: int
    """Maximum number of concurrent pieces of work; enough to keep it busy."""

    async def revive(self) -> None:
        """Restart the node's judge, and check that it judges.

        Raises:
            SandboxError: it does not judge, or the node is gone.
        """
        ...


_Node = TypeVar("_Node", bound=Node)
_Result = TypeVar("_Result")


class _State(StrEnum):
    up = "up"
    reviving = "reviving"
    """Just failed; its work waits for the first attempt to revive it only."""
    down = "down"
    """Not revived yet."""
    out = "out"
    """Excluded for good."""


@dataclass(slots=True, eq=False)
class _Member(Generic[_Node]):
    node: _Node
    state: _State = _State.up
    why: str = ""
    """Its last failure."""
    failures: int = 0
    """Number of times that it stopped being `up`."""
    strikes: set[int] = field(default_factory=set)
    """The numbers of failures that were the node's fault: another node did the work."""
    busy: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: deque[_Work] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Work:
    key: str
    turn: asyncio.Future[_Member[Any]]
    failed: dict[_Member[Any], int]
    """Nodes that failed at it, each with the number of that failure."""


class NodePool(Generic[_Node]):
    """A pool that runs work on nodes. An async context manager, for one event loop.

    Args:
        breaker: the breaker that stops everything if work keeps failing although nodes seem well.
        say: a function that prints a line about a node's change of state.
    """

    def __init__(
        self, nodes: Sequence[_Node], *, breaker: CircuitBreaker, say: Callable[[str], None]
    ) -> None:
        self._members = [_Member(node) for node in nodes]
        self._breaker = breaker
        self._say = say
        self._reviving: set[asyncio.Task[None]] = set()

    @property
    def nodes(self) -> list[_Node]:
        """All nodes, in any state."""
        return [member.node for member in self._members]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reviving:
            task.cancel()
        await asyncio.gather(*self._reviving, return_exceptions=True)

    def leave_out(self, node: _Node, error: SandboxError) -> None:
        """Exclude a node that failed before any work, until it is revived."""
        member = next(one for one in self._members if one.node is node)
        self._failed(member, error)

    async def run(self, key: str, work: Callable[[_Node], Awaitable[_Result]]) -> _Result:
        """Run a piece of work on a node, and on another one if that fails.

        Args:
            key: work with the same key goes to the same node, as far as that has room.

        Raises:
            SandboxError: several nodes failed at it, or none is left.
        """
        self._breaker.check()
        failed: dict[_Member[_Node], int] = {}
        error: SandboxError | None = None
        while len(failed) < MAX_TRIES:
            member = await self._turn(_Work(key, _future(), failed))
            if member is None:
                break
            try:
                result = await work(member.node)
            except SandboxError as caught:
                error = caught
                self._failed(member, caught)
                failed[member] = member.failures
            else:
                self._breaker.record()
                for other, number in failed.items():
                    self._strike(other, number)
                return result
            finally:
                self._done(member)
        error = error or self._nobody()
        self._breaker.record(error)
        raise error

    # ── assigning work ────────────────────────────────────────────────────────────────────────────

    async def _turn(self, work: _Work) -> _Member[_Node] | None:
        """Wait for a node with room; return None if no node is left for the work."""
        self._queue(work)
        try:
            return await work.turn
        except asyncio.CancelledError:
            if work.turn.done() and not work.turn.cancelled() and work.turn.result() is not None:
                self._done(work.turn.result())
            work.turn.cancel()
            raise

    def _queue(self, work: _Work) -> None:
        home = self._home(work)
        if home is None:
            work.turn.set_result(None)  # type: ignore[arg-type]
            return
        home.waiting.append(work)
        for member in (home, *self._members):
            self._serve(member)
            if work.turn.done():
                return

    def _home(self, work: _Work) -> _Member[_Node] | None:
        """Choose a node by rendezvous hashing, so that the loss of a node moves only its own keys."""
        for state in (_State.up, _State.reviving):
            left = [m for m in self._members if m.state is state and m not in work.failed]
            if left:
                return max(left, key=lambda member: _weight(work.key, member.node.name))
        return None

    def _serve(self, member: _Member[_Node]) -> None:
        """Assign as much work to a node as it has room for."""
        while member.state is _State.up and member.busy < member.node.at_once:
            work = self._next(member)
            if work is None:
                return
            member.busy += 1
            member.idle.clear()
            work.turn.set_result(member)

    def _next(self, member: _Member[_Node]) -> _Work | None:
        """Return the oldest work of its own queue, else the newest of the longest other queue."""
        if work := _take(member.waiting, member, newest=False):
            return work
        others = sorted(self._members, key=lambda one: len(one.waiting), reverse=True)
        for other in others:
            if other.waiting and (work := _take(other.waiting, member, newest=True)):
                return work
        return None

    def _done(self, member: _Member[_Node]) -> None:
        member.busy -= 1
        if not member.busy:
            member.idle.set()
        self._serve(member)

    # ── failing nodes ─────────────────────────────────────────────────────────────────────────────

    def _failed(self, member: _Member[_Node], error: SandboxError) -> None:
        """Assign no more work to a node until it is revived."""
        member.why = str(error)
        if member.state is not _State.up:
            return
        member.failures += 1
        member.state = _State.reviving
        self._requeue(member)
        if not member.busy:
            member.idle.set()
        task = asyncio.ensure_future(self._revive(member))
        self._reviving.add(task)
        task.add_done_callback(self._reviving.discard)

    async def _revive(self, member: _Member[_Node]) -> None:
        wait_s, name = _FIRST_WAIT_S, member.node.name
        while member.state is not _State.out:
            await member.idle.wait()
            try:
                await member.node.revive()
            except SandboxError as error:
                member.why = str(error)
                if member.state is _State.reviving:
                    self._say(f"{name} is quarantined, its work goes elsewhere: {error}")
                    member.state = _State.down
                    self._requeue(member)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            else:
                if member.state is _State.down:
                    self._say(f"{name} judges again")
                if member.state is not _State.out:
                    member.state = _State.up
                    self._serve(member)
                return

    def _strike(self, member: _Member[_Node], number: int) -> None:
        member.strikes.add(number)
        if len(member.strikes) >= MAX_STRIKES and member.state is not _State.out:
            member.state = _State.out
            self._say(
                f"{member.node.name} is excluded: it failed {MAX_STRIKES} times at work that another "
                f"node then did, the last time with: {member.why}"
            )
            self._requeue(member)

    def _requeue(self, member: _Member[_Node]) -> None:
        """Move a node's waiting work to other nodes."""
        works, member.waiting = member.waiting, deque()
        for work in works:
            if not work.turn.done():
                self._queue(work)

    def _nobody(self) -> SandboxError:
        whys = "; ".join(f"{one.node.name}: {one.why}" for one in self._members[:3])
        return SandboxError(f"no node is left that judges ({whys})")


def _take(waiting: deque[_Work], member: _Member[Any], *, newest: bool) -> _Work | None:
    """Take work that a node may do from a queue, and drop cancelled work."""
    passed: list[_Work] = []
    found = None
    while waiting and found is None:
        work = waiting.pop() if newest else waiting.popleft()
        if member in work.failed:
            passed.append(work)
        elif not work.turn.done():
            found = work
    if newest:
        waiting.extend(reversed(passed))
    else:
        waiting.extendleft(reversed(passed))
    return found


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _weight(key: str, name: str) -> bytes:
    return hashlib.blake2b(
        f"{name}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
