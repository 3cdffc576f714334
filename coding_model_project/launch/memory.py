"""Peak memory of this process and its descendants."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

import psutil


class PeakMemory:
    """A sampler of the process tree's proportional set size, which counts shared pages once.

    It samples every 5 s, because a reading takes the kernel a tenth of a second.
    """

    def __init__(self) -> None:
        self.peak_gb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        root = psutil.Process()
        while not self._stop.wait(5.0):
            total = 0
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    total += process.memory_full_info().pss
            self.peak_gb = max(self.peak_gb, total / 2**30)
