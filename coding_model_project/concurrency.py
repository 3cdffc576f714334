"""Bounded concurrency on one event loop, and an asynchronous resource for synchronous callers."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from concurrent.futures import CancelledError, Future
from concurrent.futures import thread as executor_threads
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from coding_model_project.errors import SandboxError

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")
_Key = TypeVar("_Key", bound=Hashable)
_Resource = TypeVar("_Resource")


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


_ENDING = "the process is exiting and judges no more completions"


@dataclass(frozen=True, slots=True)
class _Opened(Generic[_Resource]):
    resource: _Resource
    loop: asyncio.AbstractEventLoop
    ending: asyncio.Event


class Background(Generic[_Resource]):
    """A runner of coroutines on a resource that the first call opens and the end of the process closes.

    It is safe to use from any thread. In a thread with a running event loop, it blocks that loop. A
    forked child opens its own resource, since threads do not survive a fork.

    Args:
        make: a function that returns the resource, an async context manager that is not yet entered.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[_Resource]]) -> None:
        self._make = make
        self._forget()
        _all.add(self)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._opened: Future[_Opened[_Resource]] = Future()

    def run(self, use: Callable[[_Resource], Coroutine[Any, Any, _Done]]) -> _Done:
        """Run the coroutine that `use` makes from the resource, and wait for its result.

        Raises:
            SandboxError: the process is exiting.
            Exception: any error of the coroutine or of opening the resource.
        """
        if _process_ends.is_set():
            raise SandboxError(_ENDING)
        opened = self._open().result()
        coroutine = use(opened.resource)
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, opened.loop)
        except RuntimeError as error:  # the loop is closed
            coroutine.close()
            raise SandboxError(_ENDING) from error
        try:
            return running.result()
        except CancelledError as error:
            raise SandboxError(_ENDING) from error
        except KeyboardInterrupt:
            running.cancel()
            raise

    def _open(self) -> Future[_Opened[_Resource]]:
        with self._lock:
            failed = self._opened.done() and self._opened.exception() is not None
            if self._thread is None or failed:
                self._opened = Future()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._opened,), name="judge", daemon=True
                )
                self._thread.start()
            return self._opened

    def _serve(self, opened: Future[_Opened[_Resource]]) -> None:
        async def main() -> None:
            ending = asyncio.Event()
            async with self._make() as resource:
                opened.set_result(_Opened(resource, asyncio.get_running_loop(), ending))
                await ending.wait()

        try:
            asyncio.run(main())
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    def close(self) -> None:
        """Close the resource if it is open; the next call reopens it."""
        with self._lock:
            thread, future = self._thread, self._opened
            self._thread, self._opened = None, Future()
        if thread is None or not thread.is_alive():
            return
        try:
            opened = future.result()
        except Exception:  # noqa: BLE001 - raised in the threads that called `run`
            return
        opened.loop.call_soon_threadsafe(opened.ending.set)
        thread.join()


def close_all() -> None:
    """Close every open resource; the next call reopens each."""
    for one in list(_all):
        one.close()


_process_ends = threading.Event()


def _end() -> None:
    _process_ends.set()
    close_all()


_all: weakref.WeakSet[Background[Any]] = weakref.WeakSet()
# atexit is too late: executors join their threads earlier, and a program may still run in one. These
# callbacks run last in, first out, so this one must be registered after the executors' own.
assert executor_threads
threading._register_atexit(_end)  # pyrefly: ignore[missing-attribute]
