"""Length-prefixed frames over a socket: a JSON head and bytes."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTHS = struct.Struct("<II")


def send(channel: socket.socket, head: dict[str, Any], body: bytes = b"") -> None:
    encoded = json.dumps(head).encode()
    channel.sendall(_LENGTHS.pack(len(encoded), len(body)) + encoded + body)


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next frame.

    Raises:
        EOFError: the other side closed.
        TimeoutError: nothing came within the socket's time-out.
    """
    head, body = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size))
    return json.loads(_exactly(channel, head)), _exactly(channel, body)


def _exactly(channel: socket.socket, n: int) -> bytes:
    buffer = bytearray()
    while len(buffer) < n:
        chunk = channel.recv(min(n - len(buffer), 1 << 20))
        if not chunk:
            raise EOFError("the other side closed")
        buffer += chunk
    return bytes(buffer)
