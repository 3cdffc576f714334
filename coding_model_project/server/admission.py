"""Limits on running and waiting requests. A program's clock starts when it runs, never while it waits."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.exceptions import HTTPException

from coding_model_project.sandbox.fusion import wire

_SMOOTHING = 0.1
_LONGEST_WAIT_S = 30
_LEFT_AFTER_S = 5
"""Seconds after which another server may have taken this one's place."""


class Busy(HTTPException):
    """The server is full and ran nothing of the request.

    Args:
        retry_after_s: seconds until a place may be free, estimated from recent requests.
    """

    def __init__(self, retry_after_s: int) -> None:
        detail = f"the server is full, try again in {retry_after_s} s"
        super().__init__(429, detail, {"retry-after": str(retry_after_s)})


class Leaving(HTTPException):
    """The server is shutting down and ran nothing of the request."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "the server is shutting down, send the request to another one",
            {wire.LEAVING: "1", "retry-after": str(_LEFT_AFTER_S), "connection": "close"},
        )


class Admission:
    """A limiter that runs `at_once` requests, queues `max_waiting` more in order, and rejects the rest.

    Once it is `leaving`, admitted requests finish as usual and new ones are rejected.
    """

    def __init__(self, at_once: int, max_waiting: int) -> None:
        self.places, self._max_waiting = at_once, max_waiting
        self._free = asyncio.Semaphore(at_once)
        self._typical_s = 0.1
        self.running = 0
        self.waiting = 0
        self.refused = 0
        self.waited_s = 0.0
        self.leaving = False

    @property
    def capacity(self) -> int:
        """Return the most requests that run or wait."""
        return self.places + self._max_waiting

    @property
    def idle(self) -> bool:
        """Return whether no request runs or waits."""
        return not self.running and not self.waiting

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place in which a program may run.

        Raises:
            Busy: too many requests already wait.
            Leaving: the server is shutting down.
        """
        if self.leaving:
            self.refused += 1
            raise Leaving
        if self.waiting >= self._max_waiting and self._free.locked():
            self.refused += 1
            raise Busy(self._retry_after_s())
        self.waiting += 1
        arrived = time.monotonic()
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
            self.waited_s += time.monotonic() - arrived
        self.running += 1
        started = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            self._free.release()
            self._typical_s += _SMOOTHING * (time.monotonic() - started - self._typical_s)

    def _retry_after_s(self) -> int:
        seconds = self.waiting * self._typical_s / self.places
        return min(max(1, math.ceil(seconds)), _LONGEST_WAIT_S)
