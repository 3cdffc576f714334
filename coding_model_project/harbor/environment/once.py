"""What is made once for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Once(Generic[Key, Value]):
    """Values by key, each made when first asked for. A failure is told to all who wait, and not kept.

    Args:
        most: values kept; the oldest is forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key, make: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """
        Raises:
            Exception: as `make`.
        """
        if key not in self._made:
            while len(self._made) >= self._most:
                del self._made[next(iter(self._made))]
            self._made[key] = asyncio.ensure_future(make())
        try:
            return await asyncio.shield(self._made[key])
        except Exception:
            self._made.pop(key, None)
            raise
