"""How much is judged: so many programs at once, one alone if it asks, none once the sandbox is down."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from coding_model_project.errors import SandboxError


class Limiter:
    """Lets `at_once` programs run together, or one alone. Graders may share it; in order of asking.

    Who asks to be alone must hold no place, and is alone among those that ask here: it cannot know
    what else the machine does.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
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
        """Hold all of them; nobody else gets one meanwhile."""
        async with self._gate, AsyncExitStack() as stack:
            for _ in range(self._at_once):
                await stack.enter_async_context(self._places)
            yield


class CircuitBreaker:
    """Stops a judge whose machinery keeps failing: opens once the sandbox failed too often of late.

    A partial outage otherwise biases what is measured: the samples that were judged are not a
    fair draw of those that were made.

    Args:
        window: outcomes remembered.
        max_rate: the share of failures among them above which it opens, in [0, 1].
        min_samples: outcomes needed before it may open.
    """

    def __init__(self, window: int = 200, max_rate: float = 0.2, min_samples: int = 20) -> None:
        self._outcomes: deque[bool] = deque(maxlen=window)
        self._max_rate = max_rate
        self._min_samples = min_samples
        self._open = False
        self._last_failure = ""

    @property
    def failure_rate(self) -> float:
        """The share of failures among the remembered outcomes; 0 before the first."""
        return self._outcomes.count(False) / max(1, len(self._outcomes))

    def record(self, failure: Exception | None = None) -> None:
        """Remember that the sandbox did its work, or why not; a program that failed is work done."""
        self._outcomes.append(failure is None)
        self._last_failure = str(failure) if failure else self._last_failure
        enough = len(self._outcomes) >= self._min_samples
        self._open = self._open or (enough and self.failure_rate > self._max_rate)

    def check(self) -> None:
        """Pass, unless open.

        Raises:
            SandboxError: the breaker is open.
        """
        if self._open:
            raise SandboxError(
                f"infrastructure failure rate above {self._max_rate:.0%} over the last "
                f"{len(self._outcomes)} programs: judging stopped; the last one: {self._last_failure}"
            )
