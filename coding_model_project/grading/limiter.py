"""Limits on judging: a maximum concurrency, exclusive runs, and a stop when the sandbox is down."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from coding_model_project.errors import SandboxError
from coding_model_project.sandbox.base import Queues, Sandbox

_MOST_WAITING = 4096
"""Maximum number of programs in a sandbox with its own queue."""


class Limiter:
    """A first-come, first-served limiter for `at_once` concurrent programs, or one alone.

    Graders may share it. A caller of `alone` must not hold a place. It excludes only other users of this
    limiter, not other load on the machine, and nobody without `excludes`.
    """

    def __init__(self, at_once: int, *, excludes: bool = True) -> None:
        self._at_once, self._excludes = at_once, excludes
        self._places = asyncio.Semaphore(at_once)
        self._gate = asyncio.Lock()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold one of the places."""
        async with self._gate:
            await self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold all places, so that no other program runs."""
        if not self._excludes:
            async with self.shared():
                yield
            return
        async with self._gate, AsyncExitStack() as stack:
            for _ in range(self._at_once):
                await stack.enter_async_context(self._places)
            yield

    @asynccontextmanager
    async def alone_instead(self) -> AsyncIterator[None]:
        """Hold all places, for a caller that holds one; it gives that up until all others are free."""
        self._places.release()
        try:
            async with self.alone():
                yield
        finally:
            await self._places.acquire()


def limiter_of(sandbox: Sandbox, at_once: int) -> Limiter:
    """Return a limiter of `at_once` programs in a sandbox, which may limit them itself (`Queues`)."""
    if isinstance(sandbox, Queues):
        return Limiter(_MOST_WAITING, excludes=False)
    return Limiter(at_once)


class CircuitBreaker:
    """A breaker that stops judging when the sandbox has recently failed too often.

    Otherwise a partial outage biases measurements, since the judged samples are not a random subset.

    Args:
        window: the number of most recent outcomes considered.
        max_rate: the share of failures, in [0, 1], above which it opens.
        min_samples: the number of outcomes required before it may open.
    """

    def __init__(self, window: int = 200, max_rate: float = 0.2, min_samples: int = 20) -> None:
        self._outcomes: deque[bool] = deque(maxlen=window)
        self._max_rate = max_rate
        self._min_samples = min_samples
        self._open = False
        self._last_failure = ""

    @property
    def failure_rate(self) -> float:
        """The share of failures among recent outcomes; 0 before the first."""
        return self._outcomes.count(False) / max(1, len(self._outcomes))

    def record(self, failure: Exception | None = None) -> None:
        """Record whether the sandbox worked; it did, even if the program failed."""
        self._outcomes.append(failure is None)
        self._last_failure = str(failure) if failure else self._last_failure
        enough = len(self._outcomes) >= self._min_samples
        self._open = self._open or (enough and self.failure_rate > self._max_rate)

    def check(self) -> None:
        """Raise if the breaker is open.

        Raises:
            SandboxError: the breaker is open.
        """
        if self._open:
            raise SandboxError(
                f"infrastructure failure rate above {self._max_rate:.0%} over the last "
                f"{len(self._outcomes)} programs: judging stopped; the last failure: {self._last_failure}"
            )
