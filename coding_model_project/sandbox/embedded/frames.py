"""Length-prefixed frames over a socket: a JSON head and bytes."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

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
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def send_head(channel: socket.socket, head: Head, n: int) -> None:
    """Send a frame's head, which a body of `n` bytes must follow; raises as `send` does."""
    text = json.dumps(head).encode()
    channel.sendall(LENGTHS.pack(len(text), n) + text)


def send_parts(channel: socket.socket, head: Head, body: bytes | bytearray, n: int) -> None:
    """Send a frame's head and the first part of its `n` bytes long body, without a copy."""
    text = json.dumps(head).encode()
    start = LENGTHS.pack(len(text), n) + text
    sent = channel.sendmsg((start, body))
    if sent < len(start):
        channel.sendall(start[sent:])
    channel.sendall(memoryview(body)[max(0, sent - len(start)) :])


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
