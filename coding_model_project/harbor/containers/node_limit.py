"""A limit over all processes of a node: so many containers at once, whoever started them."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

_LOOK_S = 0.1


class NodeLimit:
    """Places that are locked files, which the kernel unlocks for a process that is killed.

    Args:
        most: places. Processes with another number share the first ones.
        folder: of the files, the same for all that share them. By default one in /tmp and not in TMPDIR,
            which a run has for itself.
    """

    def __init__(self, most: int, folder: Path | None = None) -> None:
        self._most = most
        self._folder = folder or Path(f"/tmp/coding-harbor-{os.getuid()}")

    def free(self) -> int | None:
        """Take a place if one is free; give it back by `os.close`.

        Raises:
            OSError: the folder cannot be written.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        for number in range(self._most):
            place = os.open(self._folder / f"place-{number}", flags, 0o600)
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(place)
            else:
                return place
        return None

    async def take(self) -> int:
        """Wait for a place. Raises as `free`."""
        while (place := self.free()) is None:
            await asyncio.sleep(_LOOK_S)
        return place
