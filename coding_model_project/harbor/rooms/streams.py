"""What commands print, read as fast as it comes and kept up to a bound."""

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
    """What a command prints, read as fast as it comes."""

    def __init__(self, reader: int, most: int) -> None:
        super().__init__(most)
        self.fd = reader
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
            self.add(chunk)

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
                    stream.forget()  # whoever goes on writing is read, for nobody
            self.streams = [stream for stream in self.streams if stream.open]
            if channel.fileno() in ready:
                return

    def close(self) -> None:
        """Once all who could write are gone."""
        for stream in self.streams:
            stream.close()
        self.streams.clear()
