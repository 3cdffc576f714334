"""Requests to a confined process, one at a time, and its answers: a length and as many bytes, in pipes.

P only passes them on, through a buffer that it wipes: what P has in its memory is in that of every
process that it forks later.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

_LENGTH = 8
_CHUNK = 1 << 16
"""Bytes that a pipe holds, and that are passed on or read at once."""

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
        self._hearing = select.poll()
        self._hearing.register(self._answers, select.POLLIN | select.POLLHUP)
        self._first = bytearray(_LENGTH + _CHUNK)

    @property
    def inner(self) -> tuple[int, int]:
        """Descriptors for the process: of its answers, and of requests."""
        return self._from_process, self._requests

    def begin(self) -> None:
        """Close what is the process's alone, once that is forked."""
        os.close(self._from_process)
        os.close(self._requests)

    def request(self, channel: socket.socket, n: int, wait: Wait | None) -> bool:
        """Pass the channel's next bytes on to the process; false if it does not read all of them.

        Args:
            n: bytes of the request.
            wait: None if the process is not to get it.

        Raises:
            EOFError: the channel is closed.
        """
        is_read = wait is not None
        buffer = bytearray(_LENGTH + min(n, _CHUNK))
        buffer[:_LENGTH] = n.to_bytes(_LENGTH, "little")
        with memoryview(buffer) as view:
            at, left = (
                _LENGTH,
                n,
            )  # the length goes with the first part: a small request is one write
            while left or at:
                got = channel.recv_into(view[at : at + min(left, _CHUNK)]) if left else 0
                if left and not got:
                    raise EOFError("the other side closed")
                left -= got
                is_read = is_read and wait is not None and self._write(view[: at + got], wait)
                at = 0
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
        return not self._hearing.poll(0)

    def answer(self, wait: Wait, max_bytes: int) -> bytearray | None:
        """Return the answer, to be wiped; None if the process sent none of at most `max_bytes`."""
        first = self._first
        got = self._read(memoryview(first), wait, least=_LENGTH)
        n = int.from_bytes(first[:_LENGTH], "little")
        here = got - _LENGTH
        content = None
        if 0 <= here <= n <= max_bytes:  # what comes after an answer was not asked for
            content = bytearray(n)
            with memoryview(content) as view:
                view[:here] = memoryview(first)[_LENGTH:got]  # a slice of `first` would be a copy
                is_whole = self._read(view[here:], wait, least=n - here) == n - here
            if not is_whole:
                wipe(content)
                content = None
        wipe(first, got)
        return content

    def _read(self, view: memoryview, wait: Wait, *, least: int) -> int:
        """Read until at least so many bytes are there, or no more will be; returns how many are."""
        at = 0
        while at < least and wait(self._answers, select.POLLIN):
            try:
                got = os.readv(self._answers, [view[at:]])
            except BlockingIOError:  # the process has ended, and something below it has not
                break
            if not got:
                break
            at += got
        return at

    def close(self) -> None:
        """Close P's end."""
        for descriptor in (self._to_process, self._answers):
            os.close(descriptor)


def wipe(content: bytearray, n: int | None = None) -> None:
    """Overwrite the first `n` bytes, or all, so that no process forked later finds them."""
    with memoryview(content)[:n] as view:
        view[:] = bytes(len(view))


# ── in the process ────────────────────────────────────────────────────────────────────────────────


def receive(requests: int) -> bytes | None:
    """Return the next request; None if there are no more. There is never more than one in the pipe."""
    parts: list[bytes] = []
    got, n = 0, _LENGTH
    while got < n:
        parts.append(os.read(requests, _CHUNK))
        if not parts[-1]:
            return None
        got += len(parts[-1])
        if len(parts) == 1:  # a length is written in one piece
            n += int.from_bytes(parts[0][:_LENGTH], "little")
            parts[0] = parts[0][_LENGTH:]
    return b"".join(parts)


def send(answers: int, answer: bytes) -> None:
    """Send an answer."""
    left = memoryview(len(answer).to_bytes(_LENGTH, "little") + answer)
    while left:
        left = left[os.write(answers, left) :]
