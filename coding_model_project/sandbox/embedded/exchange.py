"""Requests to a confined process, one at a time, and its answers: a length and as many bytes, in pipes.

P only passes them on, through a buffer that it wipes: what P has in its memory is in that of every
process that it forks later.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from coding_model_project.sandbox.embedded import frames

_LENGTH = 8
_CHUNK = 1 << 16

if TYPE_CHECKING:
    import socket

    Wait = Callable[[int, int], bool]
    """Waits until a descriptor is ready for events of `poll`; false if that will not be."""


class Exchange:
    """P's end."""

    def __init__(self) -> None:
        self._requests, self._to_process = os.pipe()
        self._answers, self._from_process = os.pipe()
        os.set_blocking(self._to_process, False)
        os.set_blocking(self._answers, False)

    @property
    def inner(self) -> tuple[int, int]:
        """Descriptors for the process: of its answers, and of requests."""
        return self._from_process, self._requests

    def begin(self) -> None:
        """Close what is the process's alone, once that is forked."""
        os.close(self._from_process)
        os.close(self._requests)

    def request(self, channel: socket.socket, wait: Wait | None) -> bool:
        """Pass the channel's next frame on to the process; false if it does not read all of it.

        Args:
            wait: None if the process is not to get it.

        Raises:
            EOFError: the channel is closed.
        """
        _, left = frames.receive_head(channel)
        is_read = wait is not None and self._write(left.to_bytes(_LENGTH, "little"), wait)
        buffer = bytearray(min(left, _CHUNK))
        with memoryview(buffer) as view:
            while left:
                got = channel.recv_into(view[: min(left, _CHUNK)])
                if not got:
                    raise EOFError("the other side closed")
                left -= got
                is_read = is_read and wait is not None and self._write(view[:got], wait)
            view[:] = bytes(len(view))
        return is_read

    def _write(self, content: bytes | memoryview, wait: Wait) -> bool:
        left = memoryview(content)
        while left:
            try:
                left = left[os.write(self._to_process, left) :]
            except BlockingIOError:
                if not wait(self._to_process, select.POLLOUT):
                    return False
            except OSError:  # it has closed its end
                return False
        return True

    def is_silent(self) -> bool:
        """Return true if the process runs and says nothing that it was not asked."""
        poll = select.poll()
        poll.register(self._answers, select.POLLIN | select.POLLHUP)
        return not poll.poll(0)

    def answer(self, wait: Wait, max_bytes: int) -> bytearray | None:
        """Return the answer, to be wiped; None if the process sent none of at most `max_bytes`."""
        length = self._read(_LENGTH, wait)
        if length is None or (n := int.from_bytes(length, "little")) > max_bytes:
            return None
        return self._read(n, wait)

    def _read(self, n: int, wait: Wait) -> bytearray | None:
        content, at = bytearray(n), 0
        with memoryview(content) as view:
            while at < n and wait(self._answers, select.POLLIN):
                try:
                    got = os.readv(self._answers, [view[at:]])
                except BlockingIOError:  # the process has ended, and something below it has not
                    break
                if not got:
                    break
                at += got
        if at == n:
            return content
        content[:] = bytes(n)
        return None

    def close(self) -> None:
        """Close P's end."""
        for descriptor in (self._to_process, self._answers):
            os.close(descriptor)


# ── in the process ────────────────────────────────────────────────────────────────────────────────


def receive(requests: int) -> bytes | None:
    """Return the next request; None if there are no more."""
    length = _exactly(requests, _LENGTH)
    return None if length is None else _exactly(requests, int.from_bytes(length, "little"))


def _exactly(descriptor: int, n: int) -> bytes | None:
    parts = []
    while n:
        parts.append(os.read(descriptor, min(n, 1 << 20)))
        if not parts[-1]:
            return None
        n -= len(parts[-1])
    return b"".join(parts)


def send(answers: int, answer: bytes) -> None:
    """Send an answer."""
    left = memoryview(len(answer).to_bytes(_LENGTH, "little") + answer)
    while left:
        left = left[os.write(answers, left) :]
