"""A limit on concurrent containers that all processes of a node share."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from coding_model_project.contained import open_lock, private_folder

_LOOK_S = 0.1


class NodeLimit:
    """A limit made of locked files, which the kernel unlocks if a process is killed.

    Args:
        n_places: number of places. Processes with different numbers share the first ones.
        folder: folder of the lock files, common to all processes. Default: this user's on this node.
    """

    def __init__(self, n_places: int, folder: Path | None = None) -> None:
        self._n_places = n_places
        self._folder = folder or private_folder()

    def free(self) -> int | None:
        """Take a place if one is free; `os.close` releases it.

        Raises:
            OSError: the folder is not writable.
        """
        for number in range(self._n_places):
            place = open_lock(self._folder / f"container-{number}")
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
