"""Bounded concurrency on one event loop, and its usual bound."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
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


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of CPU cores of this process, within its container's quota; at least 1.

    Args:
        root: the root of the file system to read cgroups from.
    """
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))
