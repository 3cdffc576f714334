"""Length-prefixed frames over a socket: a JSON head and bytes."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

Head = dict[str, Any]
"""A frame's head: plain JSON, between processes of this project only."""

_LENGTHS = struct.Struct("<II")
_CHUNK = 1 << 20


def packed(head: Head, body: bytes = b"") -> bytes:
    """Return one frame."""
    encoded = json.dumps(head).encode()
    return _LENGTHS.pack(len(encoded), len(body)) + encoded + body


def send(channel: socket.socket, head: Head, body: bytes = b"") -> None:
    """Send one frame.

    Raises:
        OSError: the other side closed, or did not take it within the socket's time-out.
    """
    channel.sendall(packed(head, body))


def send_head(channel: socket.socket, head: Head, n: int) -> None:
    """Send a frame's head, which a body of `n` bytes must follow. As `send`."""
    encoded = json.dumps(head).encode()
    channel.sendall(_LENGTHS.pack(len(encoded), n) + encoded)


def receive(channel: socket.socket) -> tuple[Head, bytes]:
    """The next frame.

    Raises:
        EOFError: the other side closed.
        TimeoutError: nothing came within the socket's time-out.
    """
    head, n = receive_head(channel)
    return head, receive_body(channel, n)


def receive_head(channel: socket.socket) -> tuple[Head, int]:
    """The next frame's head, and of how many bytes its body is, which is left unread. As `receive`."""
    head, body = _LENGTHS.unpack(receive_body(channel, _LENGTHS.size))
    return json.loads(receive_body(channel, head)), body


def receive_body(channel: socket.socket, n: int) -> bytes:
    """The body of a frame whose head was received. As `receive`."""
    buffer = bytearray()
    while len(buffer) < n:
        chunk = channel.recv(min(n - len(buffer), _CHUNK))
        if not chunk:
            raise EOFError("the other side closed")
        buffer += chunk
    return bytes(buffer)
