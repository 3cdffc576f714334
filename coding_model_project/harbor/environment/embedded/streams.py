"""What commands print, read as fast as it comes and kept up to a bound."""

from __future__ import annotations

import fcntl
import os
import select
import socket
from contextlib import suppress
from dataclasses import dataclass, field

_PIPE_BYTES = 1 << 20


class Stream:
    """What a command prints: read as fast as it comes, and kept up to a bound."""

    def __init__(self, reader: int, most: int) -> None:
        self.fd = reader
        self._half = max(1, most // 2)
        self._head, self._tail = bytearray(), bytearray()
        self._lost = 0
        self.open = True
        with suppress(OSError):
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(reader, False)

    def drain(self) -> None:
        """Take all that is there."""
        while self.open:
            try:
                chunk = os.read(self.fd, _PIPE_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                self.close()
                return
            self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._half:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._half
        if excess > 0:
            self._lost += excess
            del self._tail[:excess]

    def take(self) -> tuple[bytes, int]:
        """What was kept, and how many bytes of its middle were not."""
        self._trim()
        return bytes(self._head + self._tail), self._lost

    def forget(self) -> None:
        """Go on reading for whoever goes on writing, and keep nothing."""
        self._head, self._tail = bytearray(), bytearray()

    def close(self) -> None:
        if self.open:
            os.close(self.fd)
            self.open = False


@dataclass(slots=True)
class Background:
    """Streams of commands that ended and left processes which may still print."""

    streams: list[Stream] = field(default_factory=list)

    def wait(self, channel: socket.socket) -> None:
        """Read them until the channel has something to say."""
        while self.streams:
            poll = select.poll()
            poll.register(channel, select.POLLIN)
            for stream in self.streams:
                poll.register(stream.fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            for stream in self.streams:
                if stream.fd in ready:
                    stream.drain()
                    stream.forget()
            self.streams = [stream for stream in self.streams if stream.open]
            if channel.fileno() in ready:
                return

    def close(self) -> None:
        """Once all who could write are gone."""
        for stream in self.streams:
            stream.close()
        self.streams.clear()
