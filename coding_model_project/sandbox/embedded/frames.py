"""Length-prefixed frames over a socket: a JSON head and bytes."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTHS = struct.Struct("<II")
_CHUNK = 1 << 20


def send(channel: socket.socket, head: dict[str, Any], body: bytes = b"") -> None:
    """Send one frame.

    Raises:
        OSError: the other side closed, or did not take it within the socket's time-out.
    """
    encoded = json.dumps(head).encode()
    channel.sendall(_LENGTHS.pack(len(encoded), len(body)) + encoded + body)


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next frame.

    Raises:
        EOFError: the other side closed.
        TimeoutError: nothing came within the socket's time-out.
    """
    head, body = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size))
    data = _exactly(channel, head + body)
    return json.loads(data[:head]), data[head:]


def _exactly(channel: socket.socket, n: int) -> bytes:
    buffer = bytearray()
    while len(buffer) < n:
        chunk = channel.recv(min(n - len(buffer), _CHUNK))
        if not chunk:
            raise EOFError("the other side closed")
        buffer += chunk
    return bytes(buffer)
