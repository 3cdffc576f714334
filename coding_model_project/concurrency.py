"""Bounded concurrency on one event loop."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")
_Key = TypeVar("_Key", bound=Hashable)


async def each(
    items: Iterable[_Item],
    work: Callable[[_Item], Coroutine[Any, Any, _Done]],
    *,
    at_once: int = sys.maxsize,
) -> list[_Done]:
    """Run `work` on each item concurrently, and return the results in the items' order.

    Args:
        at_once: the maximum number of items in progress; the next is taken when one of them ends.

    Raises:
        Exception: the first error of an item's work; the others are cancelled.
    """
    places = asyncio.Semaphore(at_once)

    async def one(item: _Item) -> _Done:
        try:
            return await work(item)
        finally:
            places.release()

    tasks: list[asyncio.Task[_Done]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                await places.acquire()
                tasks.append(group.create_task(one(item)))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def in_order(
    items: Iterable[_Item],
    work: Callable[[_Item], Coroutine[Any, Any, _Done]],
    *,
    at_once: int,
) -> AsyncIterator[_Done]:
    """Run `work` on each item concurrently, and yield the results in the items' order.

    Args:
        at_once: the maximum number of items in progress; the next is taken when one of them ends.

    Raises:
        Exception: an item's work failed, or the next item; those in progress are cancelled.
    """
    left = iter(items)
    running: deque[asyncio.Task[_Done]] = deque()
    try:
        while True:
            busy = [one for one in running if not one.done()]
            new = islice(left, at_once - len(busy))
            started = [asyncio.ensure_future(work(item)) for item in new]
            running += started
            if not running:
                return
            if running[0].done():
                yield running.popleft().result()
            else:
                await asyncio.wait([*busy, *started], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Once(Generic[_Key, _Done]):
    """A cache that computes each key's value on first use. All waiters get a failure; it is not cached.

    Args:
        max_values: maximum number of cached values; the oldest is evicted.
    """

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._made: dict[_Key, asyncio.Task[_Done]] = {}

    async def get(self, key: _Key, make: Callable[[], Coroutine[Any, Any, _Done]]) -> _Done:
        """Return the key's value, which `make` computes if it is not cached.

        Raises:
            Exception: as `make`.
        """
        if key not in self._made:
            while len(self._made) >= self._max_values:
                del self._made[next(iter(self._made))]
            made = self._made[key] = asyncio.ensure_future(make())
            made.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(self._made[key])
        except Exception:
            self._made.pop(key, None)
            raise


def _retrieve(made: asyncio.Task[Any]) -> None:
    """Mark an exception as seen, which asyncio would print if all waiters were cancelled."""
    if not made.cancelled():
        made.exception()
