"""What a test's process prints, and the frame that says so."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from coding_model_project.sandbox.embedded import frames
from coding_model_project.types import Limits

_STDERR_TAIL = 2000


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files in memory: limited by size, read when their writer has ended, so nothing can block."""

    out: int
    err: int
    answer: int

    @classmethod
    def create(cls) -> Outputs:
        return cls(*(os.memfd_create(name) for name in ("out", "err", "answer")))

    @property
    def descriptors(self) -> tuple[int, int, int]:
        return self.out, self.err, self.answer

    def send(
        self,
        channel: socket.socket,
        limits: Limits,
        confined: bool,
        status: int,
        usage: Any,
        killed: str | None,
        started: float,
    ) -> None:
        """Send what became of an input, and close these."""
        wall_s = time.monotonic() - started
        cap = limits.output_kb << 10
        sizes = [os.fstat(fd).st_size for fd in self.descriptors]
        printed = os.pread(self.out, min(sizes[0], cap), 0)
        answered = os.pread(self.answer, min(sizes[2], cap), 0)
        tail = os.pread(self.err, _STDERR_TAIL, max(0, sizes[1] - _STDERR_TAIL))
        for fd in self.descriptors:
            os.close(fd)
        result = {
            "confined": confined,
            "exit": os.waitstatus_to_exitcode(status),
            "killed": killed,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "wall_s": wall_s,
            "full": max(sizes) >= cap,
            "printed": len(printed),
            "answered": len(answered),
        }
        frames.send(channel, result, printed + answered + tail)
