"""The queue of programs for servers, and their packing into requests.

A request costs a server a new Python, twenty times the cost of a small test. So there are as many
requests in flight as the servers run at once, and each takes a share of the waiting programs. No program
costs another its answer: programs that a request did not reach go back to the front of the queue, and a
failed request is split into one for each program.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from coding_model_project.errors import CodingModelError, ConfigError, DataError, SandboxError
from coding_model_project.sandbox.carried.messages import (
    Answer,
    NotAnAnswer,
    Outcome,
    Request,
    Task,
    worth_importing,
)
from coding_model_project.sandbox.fusion import capabilities
from coding_model_project.sandbox.fusion.endpoint import Unavailable
from coding_model_project.sandbox.fusion.fleet import Fleet
from coding_model_project.types import Asserts, Call, Execution, Files, Input, Stdin

BUDGET_S = 10.0
"""Wall seconds after which a driver starts no further input of a program in its own request: the answer
must arrive before proxies time out."""

SHARED_BUDGET_S = 5.0
"""The same for several programs: a slow one delays the others by no more than its current input."""

_LEAST_INPUTS = 64
"""Inputs that make a request worth its start-up cost; fewer are sent only if a core would idle."""

_MOST_INPUTS = 512
_MOST_PROGRAMS = 128
_MOST_BYTES = 8 << 20


@dataclass(slots=True, eq=False)
class _Waiting:
    """A program with its next inputs, and the future of their executions."""

    task: Task
    n_bytes: int
    done: asyncio.Future[tuple[Execution, ...]]
    alone: bool = False
    """True if it needs its own request, with retries, since an earlier one failed."""


@dataclass(slots=True, eq=False)
class Packing:
    """A queue that runs programs on a fleet, several per request."""

    fleet: Fleet
    facts: capabilities.Facts
    max_concurrency: int
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)
    _n_first: int = 0
    """Number of requests in flight that are sent for the first time: retried ones occupy no core."""
    _scheduled: bool = False

    async def run(self, task: Task) -> tuple[Execution, ...]:
        """Run a program and return the executions of its first inputs, at least of one.

        Raises:
            SandboxError: the servers failed for as long as requests are retried.
            DataError, ConfigError: the program cannot run there.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(task, _size(task), loop.create_future())
        self._waiting.append(waiting)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._send)  # after all callers that are ready have queued their tasks
        try:
            return await waiting.done
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    async def close(self) -> None:
        """Cancel requests in flight and the callers that still wait."""
        for request in self._under_way:
            request.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _send(self) -> None:
        """Send requests while programs wait and cores are free."""
        self._scheduled = False
        for one in [one for one in self._waiting if one.alone]:
            self._waiting.remove(one)
            self._start([one])
        places = min(self.max_concurrency, self.fleet.members.places(self.facts.cores))
        while self._waiting and self._n_first < places:
            self._start(self._take(places, places - self._n_first))

    def _start(self, pack: list[_Waiting]) -> None:
        first = not pack[0].alone
        self._n_first += first
        request = asyncio.ensure_future(self._deliver(pack))
        self._under_way.add(request)

        def ended(_: object) -> None:
            error = None if request.cancelled() else request.exception()
            for one in pack:
                if request.cancelled():
                    one.done.cancel()
                elif error is not None and not one.done.done():
                    one.done.set_exception(error)
            self._n_first -= first
            self._under_way.discard(request)
            self._send()

        def give_up(_: object) -> None:
            if all(one.done.cancelled() for one in pack):  # no caller waits for it any more
                request.cancel()

        request.add_done_callback(ended)
        for one in pack:
            one.done.add_done_callback(give_up)

    def _take(self, places: int, free: int) -> list[_Waiting]:
        """Take the next programs: half of a core's share, so that all cores end together, or enough to
        make a request worth its start-up cost, if no free core gets less."""
        total = sum(len(one.task.inputs) for one in self._waiting)
        enough = min(max(total / (2 * places), min(total / free, _LEAST_INPUTS)), _MOST_INPUTS)
        pack = [self._waiting.popleft()]
        n_inputs, n_bytes = len(pack[0].task.inputs), pack[0].n_bytes
        while self._waiting and len(pack) < _MOST_PROGRAMS:
            n_inputs += len(self._waiting[0].task.inputs)
            n_bytes += self._waiting[0].n_bytes
            if n_inputs > enough or n_bytes > _MOST_BYTES:
                break
            pack.append(self._waiting.popleft())
        return pack

    async def _deliver(self, pack: list[_Waiting]) -> None:
        """Run the programs of a request, and give each its executions.

        An error is that of each program, unless the programs are sent again.
        """
        first = not pack[0].alone
        try:
            outcomes = await self._outcomes([one.task for one in pack], first=first)
        except (Unavailable, SandboxError) as error:
            if isinstance(error, SandboxError) and len(pack) == 1:
                raise
            self._wait_again(pack, alone=True)  # this shows which program is at fault
            return
        self._wait_again(pack[len(outcomes) :], alone=False)
        for one, outcome in zip(pack, outcomes, strict=False):
            if one.done.done():
                continue
            if outcome.executions:
                one.done.set_result(outcome.executions)
            elif outcome.error:
                one.done.set_exception(_error(*outcome.error))
            else:
                self._wait_again([one], alone=True)

    async def _outcomes(self, tasks: Sequence[Task], *, first: bool) -> tuple[Outcome, ...]:
        """Return the outcomes of the first programs, at least of one.

        Args:
            first: do not retry a request that a server may have started.

        Raises:
            Unavailable: such a request failed, perhaps because of one of its programs.
        """
        budget_s = SHARED_BUDGET_S if len(tasks) > 1 else BUDGET_S
        preload = () if self.facts.takes_batches else worth_importing(tasks)
        request = Request(tasks=tuple(tasks), budget_s=budget_s, preload=tuple(preload))

        def accept(data: bytes) -> tuple[Outcome, ...]:
            try:
                answer = self.facts.read(data, request)
            except NotAnAnswer as error:
                raise Unavailable(str(error)) from error
            _check(answer, self.facts.identity)
            return answer.outcomes

        return await self.fleet.run(*self.facts.ask(request), accept, once_begun=first)

    def _wait_again(self, pack: Sequence[_Waiting], *, alone: bool) -> None:
        for one in reversed(pack):
            if not one.done.done():
                one.alone = one.alone or alone
                self._waiting.appendleft(one)


def _check(answer: Answer, identity: str) -> None:
    """Check that an answer has an outcome of the first program.

    Raises:
        Unavailable: it has none; retry, perhaps on another server.
    """
    if answer.identity != identity:
        raise Unavailable(f"the server changed: {identity}, now {answer.identity}")
    if not answer.outcomes:
        raise Unavailable(answer.error or "an answer without executions")
    first = answer.outcomes[0]
    if not first.executions and not first.error:
        raise Unavailable(first.lost or answer.error or "an answer without executions")


def _error(name: str, message: str) -> CodingModelError:
    """Return a driver's error as our exception."""
    return (ConfigError if name == ConfigError.__name__ else DataError)(message)


def _size(task: Task) -> int:
    files = sum(map(len, task.program.files.values()))
    return len(task.program.source) + files + sum(map(input_size, task.inputs))


def input_size(given: Input) -> int:
    """Return the approximate number of characters of an input."""
    match given:
        case Stdin():
            return len(given.text)
        case Call():
            return len(repr(given.args))
        case Asserts():
            return len(given.source)
        case Files():
            return sum(map(len, given.contents.values()))
