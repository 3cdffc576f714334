"""Messages between processes of this project, which start with their lengths.

- Frames over a socket: a JSON head and bytes.
- Requests to a confined process, one at a time, and its answers, in pipes (`Exchange`). P only passes
  them on, through a buffer that it wipes: every process that P forks later has a copy of P's memory.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import select
import struct
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    Wait = Callable[[int, int], bool]
    """Waits until a descriptor is ready for `poll` events; returns false if it will never be."""

Head = dict[str, Any]
"""A frame's head: plain JSON, exchanged between processes of this project only."""

LENGTHS = struct.Struct("<II")
_CHUNK = 1 << 20


def send(channel: socket.socket, head: Head, body: bytes = b"") -> None:
    """Send one frame.

    Raises:
        OSError: the other side closed, or did not read it within the socket's time-out.
    """
    channel.sendall(encoded(head, body))


def encoded(head: Head, body: bytes = b"") -> bytes:
    """Return a frame's bytes on the wire."""
    return _start(head, len(body)) + body


def _start(head: Head, n: int) -> bytes:
    """Return a frame's bytes before its body of `n` bytes."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), n) + text


def send_parts(channel: socket.socket, head: Head, body: bytes | memoryview, n: int) -> None:
    """Send a frame's head and the first part of its `n` bytes long body, without a copy.

    Raises as `send` does.
    """
    start = _start(head, n)
    sent = channel.sendmsg((start, body))
    if sent < len(start):
        channel.sendall(start[sent:])
    if left := memoryview(body)[max(0, sent - len(start)) :]:  # else an empty message would be sent
        channel.sendall(left)


def receive(channel: socket.socket) -> tuple[Head, bytes]:
    """Return the next frame.

    Raises:
        EOFError: the other side closed.
        TimeoutError: nothing came within the socket's time-out.
    """
    head, n = receive_head(channel)
    return head, receive_body(channel, n)


def receive_head(channel: socket.socket) -> tuple[Head, int]:
    """Return the next frame's head, and the size of its body, which stays unread; see `receive`."""
    head, body = LENGTHS.unpack(receive_body(channel, LENGTHS.size))
    return json.loads(receive_body(channel, head)), body


def receive_body(channel: socket.socket, n: int) -> bytes:
    """Return the body of a frame whose head was received; raises as `receive` does."""
    buffer = bytearray()
    while len(buffer) < n:
        chunk = channel.recv(min(n - len(buffer), _CHUNK))
        if not chunk:
            raise EOFError("the other side closed")
        buffer += chunk
    return bytes(buffer)


def parts(body: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return the parts of these sizes that a body consists of."""
    ends = list(accumulate(sizes))
    return [body[end - size : end] for size, end in zip(sizes, ends, strict=True)]


MORE, LAST = b"+", b"."
"""First byte of an answer: more requests may be sent, or not."""

_FIONREAD = 0x541B  # of `termios`, whose mappings every test's process would copy
_LENGTH_BYTES = 8
_PIPE_BYTES = 1 << 16
"""Bytes that a pipe holds; also the most that are passed on or read at once."""


class Exchange:
    """P's end of the pipes."""

    def __init__(self) -> None:
        self._requests, self._to_process = os.pipe()
        self._answers, self._from_process = os.pipe()
        os.set_blocking(self._to_process, False)
        os.set_blocking(self._answers, False)
        self._first = bytearray(_LENGTH_BYTES + _PIPE_BYTES)
        self._sent = 0
        """Bytes of the last request that the pipe took."""

    @property
    def inner(self) -> tuple[int, int]:
        """The process's descriptors: of its answers, and of requests."""
        return self._from_process, self._requests

    def begin(self) -> None:
        """Close the process's ends after it is forked."""
        os.close(self._from_process)
        os.close(self._requests)

    def request(self, channel: socket.socket, n: int, wait: Wait) -> bool:
        """Pass the channel's next bytes on to the process; return false if it does not read all of them.

        Args:
            n: bytes of the request.

        Raises:
            EOFError: the channel is closed.
        """
        is_read, self._sent = True, 0
        buffer = bytearray(_LENGTH_BYTES + min(n, _PIPE_BYTES))
        buffer[:_LENGTH_BYTES] = n.to_bytes(_LENGTH_BYTES, "little")
        with memoryview(buffer) as view:
            # The length goes with the first part: a small request is one write.
            at, left = _LENGTH_BYTES, n
            while left or at:
                got = channel.recv_into(view[at : at + min(left, _PIPE_BYTES)]) if left else 0
                if left and not got:
                    raise EOFError("the other side closed")
                left -= got
                is_read = is_read and self._write(view[: at + got], wait)
                at = 0
            view[:] = bytes(len(view))
        return is_read

    def _write(self, content: bytes | memoryview, wait: Wait) -> bool:
        left = memoryview(content)
        while left:
            try:
                n = os.write(self._to_process, left)
                self._sent += n
                left = left[n:]
            except BlockingIOError:
                if not wait(self._to_process, select.POLLOUT):
                    return False
            except OSError:  # the process has closed its end
                return False
        return True

    @property
    def is_unread(self) -> bool:
        """True if the process has read nothing of the last request."""
        left = fcntl.ioctl(self._to_process, _FIONREAD, bytes(4))
        return int.from_bytes(left, sys.byteorder) == self._sent

    def has_answer(self) -> bool:
        """Return whether something came that nobody asked for, or the process closed its end."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def answer(self, wait: Wait, max_bytes: int) -> tuple[bytearray | None, bool]:
        """Return the answer, which the caller wipes, and whether it is longer than `max_bytes`.

        The answer is None if it is too long, or none came.
        """
        first = self._first
        got = self._read(memoryview(first), wait, least=_LENGTH_BYTES)
        n = int.from_bytes(first[:_LENGTH_BYTES], "little")
        here = got - _LENGTH_BYTES
        is_longer = here >= 0 and n > max_bytes
        content = None
        if 0 <= here <= n <= max_bytes:  # more bytes than an answer has are unrequested
            content = bytearray(n)
            with memoryview(content) as view:
                view[:here] = memoryview(first)[
                    _LENGTH_BYTES:got
                ]  # a slice of `first` would be a copy
                is_whole = self._read(view[here:], wait, least=n - here) == n - here
            if not is_whole:
                wipe(content)
                content = None
        wipe(first, got)
        return content, is_longer

    def _read(self, view: memoryview, wait: Wait, *, least: int) -> int:
        """Read until `least` bytes have arrived or no more will; return the number of bytes read."""
        at = 0
        while at < least and wait(self._answers, select.POLLIN):
            try:
                got = os.readv(self._answers, [view[at:]])
            except BlockingIOError:  # the process has ended, but a child of it has not
                break
            if not got:
                break
            at += got
        return at

    def close(self) -> None:
        for descriptor in (self._to_process, self._answers):
            os.close(descriptor)


def wipe(content: bytearray, n: int | None = None) -> None:
    """Overwrite the first `n` bytes, or all, so that no process forked later finds them."""
    with memoryview(content)[:n] as view:
        view[:] = bytes(len(view))


# ── in the process ────────────────────────────────────────────────────────────────────────────────


class Oversized(Exception):
    """A message longer than its reader accepts; the pipe is then unusable."""


def next_message(reader: int, max_bytes: float = math.inf) -> bytes | None:
    """Return the next message of a pipe; None if there are no more.

    Raises:
        Oversized: it is longer than `max_bytes`.
    """
    length = _exactly(reader, _LENGTH_BYTES)
    if (n := int.from_bytes(length or b"", "little")) > max_bytes:
        raise Oversized
    return None if length is None else _exactly(reader, n)


def _exactly(reader: int, n: int) -> bytes | None:
    """Return the next bytes of a pipe; None if it ends before."""
    parts: list[bytes] = []
    while n:
        parts.append(os.read(reader, min(n, _CHUNK)))
        if not parts[-1]:
            return None
        n -= len(parts[-1])
    return b"".join(parts)


def send_message(writer: int, message: bytes) -> None:
    """Write a message to a pipe; raise OSError if its reader is gone."""
    left = memoryview(len(message).to_bytes(_LENGTH_BYTES, "little") + message)
    while left:
        left = left[os.write(writer, left) :]
