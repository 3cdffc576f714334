"""What a test's process prints, and the frame that says so."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from coding_model_project.sandbox.embedded import frames
from coding_model_project.types import Limits

STDERR_TAIL = 2000
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files in memory: limited by size, read when their writer has ended, so nothing can block."""

    out: int
    err: int
    answer: int

    @classmethod
    def create(cls, *, appending: bool = False) -> Outputs:
        """Make the files.

        Args:
            appending: their writer begins anew when they are emptied.
        """
        made = cls(*(os.memfd_create(name) for name in ("out", "err", "answer")))
        if appending:
            for fd in made.descriptors:
                fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        return made

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
        ended = {
            "confined": confined,
            "exit": os.waitstatus_to_exitcode(status),
            "killed": killed,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "wall_s": time.monotonic() - started,
        }
        self.send_with(channel, limits.output_kb << 10, ended, None)
        self.close()

    def send_with(
        self, channel: socket.socket, cap: int, ended: frames.Head, answered: bytearray | None
    ) -> None:
        """Send how an input ended, its answer, and what was printed, each at most `cap` bytes.

        The content goes past this process's memory, which later ones are forked from.

        Args:
            answered: the answer, if it is not in its file.
        """
        out, err, answer = (os.fstat(fd).st_size for fd in self.descriptors)
        printed = min(out, cap)
        in_file = min(answer, cap)
        head = {
            **ended,
            "full": max(out, err, answer) >= cap,
            "printed": printed,
            "answered": in_file if answered is None else len(answered),
        }
        tail = min(err, STDERR_TAIL)
        frames.send_head(channel, head, printed + head["answered"] + tail)
        _pass_on(channel, self.out, 0, printed)
        if answered is None:
            _pass_on(channel, self.answer, 0, in_file)
        else:
            channel.sendall(answered)
        _pass_on(channel, self.err, err - tail, tail)

    def has_reached(self, cap: int) -> bool:
        """Return true if as much was printed as may be."""
        return any(os.fstat(fd).st_size >= cap for fd in (self.out, self.err))

    def empty(self) -> None:
        """Forget what was printed, for the next input."""
        for fd in (self.out, self.err):
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)

    def are_empty(self) -> bool:
        """Return true if nothing was printed since they were emptied."""
        return not any(os.fstat(fd).st_size for fd in (self.out, self.err))

    def close(self) -> None:
        for fd in self.descriptors:
            os.close(fd)


def _pass_on(channel: socket.socket, file: int, at: int, n: int) -> None:
    """Send part of a file; zeros for what its writer takes away meanwhile."""
    while n:
        sent = os.sendfile(channel.fileno(), file, at, n)
        if not sent:
            channel.sendall(bytes(n))
            return
        at, n = at + sent, n - sent
