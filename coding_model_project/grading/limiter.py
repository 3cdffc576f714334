"""How many programs are judged at once, and how one gets the machine to itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager


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
