"""An unpickler for plain data only. A pickle is a program; here it may not name a function.

LiveCodeBench stores its private tests as base64 → zlib → pickle → JSON text. Each of two measures alone
prevents code execution: only opcodes that build plain data are allowed, and `find_class`, a pickle's only
way to code, rejects every name. The first also bounds the memo, whose size a pickle of a few bytes could
otherwise set to gigabytes.
"""

from __future__ import annotations

import base64
import binascii
import io
import pickle
import pickletools
import zlib
from typing import Any, NoReturn

from coding_model_project.data.loaders.base import BAD_ROW
from coding_model_project.data.loaders.files import most_unfolded

MAX_BYTES = 1 << 30
"""Maximum size of the decompressed pickle, since a small text can unpack to any size. Real rows hold up
to a few hundred MB."""

_MAX_OPCODES = 1_000_000
"""Maximum number of opcodes, each of which may make an object. LiveCodeBench's pickles hold one text."""


class HostilePickle(ValueError):
    """Bytes that are not a pickle of plain data."""


_PLAIN_OPCODES = """
    PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8
    BINBYTES SHORT_BINBYTES BINBYTES8
    EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_DICT DICT SETITEM SETITEMS EMPTY_SET ADDITEMS FROZENSET
    GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE
"""
_ALLOWED = frozenset(_PLAIN_OPCODES.split())
_MEMO = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise HostilePickle(f"names {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise HostilePickle("refers to a persistent object")


def loads(data: bytes) -> Any:
    """Unpickle plain data.

    Raises:
        HostilePickle: it names a class or function, or is not a pickle.
    """
    try:
        _check_opcodes(data)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except HostilePickle:
        raise
    except (pickle.UnpicklingError, EOFError, *BAD_ROW) as error:
        # the C unpickler's errors for malformed opcodes
        raise HostilePickle(f"not a pickle of plain data: {type(error).__name__}") from error


def _check_opcodes(data: bytes) -> None:
    for n_before, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if n_before > _MAX_OPCODES:
            raise HostilePickle(f"holds more than {_MAX_OPCODES} values")
        if opcode.name not in _ALLOWED:
            raise HostilePickle(f"uses {opcode.name}")
        # A pickler numbers its memo from 0, so it never uses an index beyond the opcodes so far.
        if opcode.name in _MEMO and isinstance(argument, int) and argument > n_before:
            raise HostilePickle("requests a larger memo than it can need")


def decode(text: str, *, max_bytes: int = MAX_BYTES) -> Any:
    """Decode base64 → zlib → pickle of plain data.

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
    return loads(data)
