"""A cache of values that concurrent callers compute once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Once(Generic[Key, Value]):
    """A cache that computes each key's value on first use. All waiters get a failure; it is not cached.

    Args:
        max_values: maximum number of cached values; the oldest is evicted.
    """

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._made: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key, make: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
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
