"""Non-blocking readers of commands' output, which they keep up to a limit."""

from __future__ import annotations

import fcntl
import os
import select
import socket
from contextlib import suppress
from dataclasses import dataclass, field

from coding_model_project.harbor.environment.output import Kept

_PIPE_BYTES = 1 << 20


class Stream(Kept):
    """A non-blocking reader of a command's output."""

    def __init__(self, reader: int, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.fd = reader
        self.open = True
        with suppress(OSError):
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(reader, False)

    def drain(self) -> None:
        """Read all available output."""
        while self.open:
            try:
                chunk = os.read(self.fd, _PIPE_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                self.close()
                return
            self.add(chunk)

    def close(self) -> None:
        if self.open:
            os.close(self.fd)
            self.open = False


@dataclass(slots=True)
class Background:
    """Streams of ended commands whose remaining processes may still print."""

    streams: list[Stream] = field(default_factory=list)

    def wait(self, channel: socket.socket, timeout_s: float | None) -> bool:
        """Drain the streams until the channel has a message.

        Returns:
            False if there is none after `timeout_s`, or perhaps sooner.
        """
        while self.streams or timeout_s is not None:
            poll = select.poll()
            poll.register(channel, select.POLLIN)
            for stream in self.streams:
                poll.register(stream.fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(None if timeout_s is None else 1000 * timeout_s)}
            for stream in self.streams:
                if stream.fd in ready:
                    stream.drain()
                    stream.forget()  # read so that writers do not block, then dropped
            self.streams = [stream for stream in self.streams if stream.open]
            if channel.fileno() in ready:
                return True
            if timeout_s is not None:
                return False
        return True

    def close(self) -> None:
        """Close the streams, once all possible writers are gone."""
        for stream in self.streams:
            stream.close()
        self.streams.clear()
