"""Bounded concurrency on one event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")


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
