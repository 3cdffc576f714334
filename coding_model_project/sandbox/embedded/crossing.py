"""The encoding between trusted tests and an untrusted program: plain data and handles, in frames.

It is `coding_model_project.codec`'s with two more tags: {"h": [number, "type"]} is a value that stays
with the program, {"k": "int"} a type of plain data itself. Decoding builds exact built-in types and
handles, nothing else.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable
from typing import Any

from coding_model_project import codec

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 20
_TAGS: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}
_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
}


class Oversized(Exception):
    """A frame longer than its reader accepts."""


class Pipe:
    """One end of a pair of pipes that sends and receives frames in turn.

    Args:
        max_bytes: longest frame that it reads; None for no limit, with a trusted writer.
    """

    def __init__(self, reader: int, writer: int, max_bytes: int | None = None) -> None:
        self._reader, self._writer, self._max_bytes = reader, writer, max_bytes

    def send(self, picture: Any) -> None:
        """Send a picture of `to_picture`.

        Raises:
            OSError: the other side is gone.
        """
        encoded = json.dumps(picture).encode("ascii")
        frame = memoryview(_LENGTH.pack(len(encoded)) + encoded)
        while frame:
            frame = frame[os.write(self._writer, frame) :]

    def receive(self) -> Any:
        """Return the next frame's picture, for `from_picture`.

        Raises:
            EOFError: the other side is gone.
            Oversized: the frame is too long; the pipe is then unusable.
            ValueError, RecursionError: the frame is not JSON.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if self._max_bytes is not None and length > self._max_bytes:
            raise Oversized
        return json.loads(self._exactly(length))

    def _exactly(self, n: int) -> bytes:
        buffer = bytearray()
        while len(buffer) < n:
            chunk = os.read(self._reader, min(n - len(buffer), _CHUNK))
            if not chunk:
                raise EOFError("the other side closed")
            buffer += chunk
        return bytes(buffer)


def to_picture(value: Any, refer: Callable[[Any], Any], depth: int = 0) -> Any:
    """Return a JSON-able picture of a value.

    Args:
        refer: returns the content of the "h" tag for a value that is not plain data; may raise.

    Raises:
        ValueError: the value nests too deep.
    """

    def inside(items: Iterable[Any]) -> list[Any]:
        return [to_picture(item, refer, depth + 1) for item in items]

    if depth > codec.MAX_DEPTH:
        raise ValueError("the value nests too deep")
    kind = type(value)
    if kind is int or kind is str or kind is float or value is None:
        return codec.to_json(value)
    if isinstance(value, list):
        return inside(list.__iter__(value))
    if isinstance(value, dict):
        return {"d": [inside(pair) for pair in list(dict.items(value))]}
    for base, tag in _TAGS.items():
        if isinstance(value, base):
            return {tag: inside(base.__iter__(value))}
    if kind is type and _KINDS.get(value.__name__) is value:
        return {"k": value.__name__}
    if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar
    plain = codec.to_json(value)
    if type(plain) is dict and "o" in plain:
        return {"h": refer(value)}
    return plain


def from_picture(picture: Any, resolve: Callable[[Any], Any]) -> Any:
    """Return the value of a picture of `to_picture`.

    Args:
        resolve: returns the value for the content of an "h" tag, which is as untrusted as the rest.

    Raises:
        ValueError, TypeError, RecursionError and the like: it is not a picture.
    """
    if isinstance(picture, list):
        return [from_picture(item, resolve) for item in picture]
    if not isinstance(picture, dict):
        return picture
    if len(picture) != 1:
        raise ValueError("an object with other than one key")
    ((tag, content),) = picture.items()
    if tag == "h":
        return resolve(content)
    if tag == "k":
        return _KINDS[content]
    if tag == "d":
        return {from_picture(k, resolve): from_picture(v, resolve) for k, v in content}
    for base, name in _TAGS.items():
        if tag == name:
            return base(from_picture(item, resolve) for item in content)
    return codec.from_json(picture)
