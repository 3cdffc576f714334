"""A reader of packed texts that runs no pickle. A pickle is a program; this module only reads its text.

LiveCodeBench and HardTests store tests as base64 → zlib → pickle → JSON text, so that a pickle holds one
text and nothing else. No unpickler runs: the text is an argument in the pickle's opcodes.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib
from itertools import islice

from coding_model_project.data.loaders.files import most_unfolded

MAX_BYTES = 1 << 30
"""Maximum size of the decompressed pickle, since a small text can unpack to any size. Real rows hold up
to a few hundred MB."""

_TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
"""Opcodes whose argument is a text."""

_AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}
"""Opcodes beside a single text, at most one of each."""


class HostilePickle(ValueError):
    """Bytes that are not the pickle of a text."""


def text_of(data: bytes) -> str:
    """Return the text of a pickle.

    Raises:
        HostilePickle: it holds something else than one text, or is not a pickle.
    """
    try:
        opcodes = list(islice(pickletools.genops(data), len(_AROUND) + 2))
    except ValueError as error:
        raise HostilePickle(f"not a pickle: {error}") from error
    texts = []
    for opcode, argument, _ in opcodes:
        if opcode.name in _TEXTS:
            texts.append(argument)
        elif opcode.name not in _AROUND:
            raise HostilePickle(f"a pickle that uses {opcode.name}, not one text")
    if len(texts) != 1:
        raise HostilePickle(f"a pickle of {len(texts)} texts, not one")
    return texts[0]


def decode(text: str, *, max_bytes: int = MAX_BYTES) -> str:
    """Decode base64 → zlib → pickle of a text.

    Raises:
        HostilePickle: a step fails, or the unpacked pickle exceeds `max_bytes`.
    """
    try:
        packed = base64.b64decode(text, validate=True)
        unpacker = zlib.decompressobj()
        max_bytes = min(max_bytes, most_unfolded(len(packed)))
        data = unpacker.decompress(packed, max_bytes)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise HostilePickle(f"not base64 of zlib: {error}") from error
    if unpacker.unconsumed_tail:
        raise HostilePickle(f"unpacks to more than {max_bytes} bytes")
    if not unpacker.eof:
        raise HostilePickle("the compressed data is truncated")
    return text_of(data)
