"""The text of every file that an agent left, including files inside archives.

Unreadable files are reported, because judges cannot clear what they did not see.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

MAX_FILE_BYTES = 512 << 20
MAX_UNPACKED_BYTES = 512 << 20
"""Most unpacked bytes of one compressed file: more may be a bomb."""
MAX_DEPTH = 3
_MOST_FILES = 50_000
_LEAST_RUN = 6
_RUN = re.compile(rb"[\x09\x0a\x0d\x20-\x7e\x80-\xff]{%d,}" % _LEAST_RUN)
"""Text in a binary file."""
_HEADER = struct.Struct("<Q")
_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    struct.error,
    RecursionError,
)


class _Unread(Exception):
    """The reason why a file cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A file's text, or the reason why it was not read."""

    path: str
    text: str = ""
    unread: str | None = None
    weights: bool = False
    """True for a safetensors file, of which only the header was read."""


def left_files(roots: Sequence[Path]) -> Iterator[Left]:
    """Read all files below the folders, without following links."""
    count = 0
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                path = Path(folder, name)
                kind = path.lstat().st_mode
                if stat.S_ISLNK(kind):
                    continue  # its target is read in its own place, or is not the agent's
                count += 1
                if count > _MOST_FILES:
                    yield Left(path=str(root), unread=f"more than {_MOST_FILES} files")
                    return
                if not stat.S_ISREG(kind):
                    continue
                yield from _read(path)


def _read(path: Path) -> Iterator[Left]:
    try:
        if _is_weights(path):
            yield Left(path=str(path), text=_header(path), weights=True)
        elif (size := path.stat().st_size) > MAX_FILE_BYTES:
            yield Left(path=str(path), unread=f"{size} bytes; at most {MAX_FILE_BYTES} are read")
        else:
            yield from _texts(str(path), path.read_bytes(), 0)
    except _BROKEN as error:
        yield Left(path=str(path), unread=_reason(error))


def _texts(name: str, content: bytes, depth: int) -> Iterator[Left]:
    """Yield a file's texts. Its content, not its name, decides the format."""
    opener = next((o for magic, o in _OPENERS if content[: len(magic)] == magic), None)
    if content[257:262] == b"ustar":
        opener = _tar
    if opener is None:
        yield Left(path=name, text=_text(content))
        return
    if depth >= MAX_DEPTH:
        yield Left(path=name, unread=f"packed more than {MAX_DEPTH} times")
        return
    try:
        for inner, unpacked in opener(content):
            yield from _texts(f"{name}!{inner}" if inner else name, unpacked, depth + 1)
    except (*_BROKEN, _Unread) as error:
        yield Left(path=name, unread=_reason(error))


def _text(content: bytes) -> str:
    for encoding in (
        ("utf-8", "utf-16") if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8",)
    ):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return "\n".join(run.decode("utf-8", "replace") for run in _RUN.findall(content))


def _is_weights(path: Path) -> bool:
    """Return whether a file is exactly a safetensors header and the bytes that it describes."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as opened:
            return bool(list(opened.keys()))
    except (SafetensorError, OSError):
        return False


def _header(path: Path) -> str:
    with path.open("rb") as file:
        length = _HEADER.unpack(file.read(_HEADER.size))[0]
        if length > 100 << 20:
            raise ValueError("no safetensors header")
        return file.read(length).decode()


# ── packed files ──────────────────────────────────────────────────────────────────────────────────


def _compressed(
    decompress: Callable[[BinaryIO], Any], content: bytes
) -> Iterator[tuple[str, bytes]]:
    with decompress(io.BytesIO(content)) as file:
        yield "", _bounded(file)


def _zstd(content: bytes) -> Iterator[tuple[str, bytes]]:
    import pyarrow

    yield "", _bounded(pyarrow.CompressedInputStream(io.BytesIO(content), "zstd"))


def _zip(content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                with archive.open(info) as member:
                    yield info.filename, _bounded(member)


def _tar(content: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.isfile() and (opened := archive.extractfile(member)) is not None:
                yield member.name, _bounded(opened)


def _parquet(content: bytes) -> Iterator[tuple[str, bytes]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(io.BytesIO(content))
        groups = map(opened.metadata.row_group, range(opened.metadata.num_row_groups))
        if sum(group.total_byte_size for group in groups) > MAX_UNPACKED_BYTES:
            raise _Unread(f"more than {MAX_UNPACKED_BYTES} bytes when unpacked")
        rows = opened.read().to_pylist()
    except pa.ArrowException as error:
        raise _Unread(f"no readable Parquet file: {error}") from error
    yield "", _lines(rows)


def _arrow(content: bytes) -> Iterator[tuple[str, bytes]]:
    import pyarrow as pa

    try:
        rows = pa.ipc.open_file(io.BytesIO(content)).read_all().to_pylist()
    except pa.ArrowException as error:
        raise _Unread(f"no readable Arrow file: {error}") from error
    yield "", _lines(rows)


def _lines(rows: list[object]) -> bytes:
    return "\n".join(json.dumps(row, default=str, ensure_ascii=False) for row in rows).encode(
        "utf-8", "replace"
    )


_OPENERS: tuple[tuple[bytes, Callable[[bytes], Iterator[tuple[str, bytes]]]], ...] = (
    (b"\x1f\x8b", partial(_compressed, gzip.open)),
    (b"BZh", partial(_compressed, bz2.open)),
    (b"\xfd7zXZ\x00", partial(_compressed, lzma.open)),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"PK\x03\x04", _zip),
    (b"PAR1", _parquet),
    (b"ARROW1", _arrow),
)


def _bounded(file: Any) -> bytes:
    content = file.read(MAX_UNPACKED_BYTES + 1)
    if len(content) > MAX_UNPACKED_BYTES:
        raise _Unread(f"more than {MAX_UNPACKED_BYTES} bytes when unpacked")
    return content


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
