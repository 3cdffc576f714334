"""Packing of a folder into an uncompressed zip archive, which a Java runtime reads."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path

_MOST_BYTES = 64 << 20
_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date in an archive, used for all files: equal content makes equal archives."""


def pack(folder: Path) -> bytes:
    """Return an archive of all regular files in a folder with an untrusted source's compiled files.

    Links are left out: their targets are not the program's.

    Raises:
        ValueError: the files are too large.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for parent, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                path = Path(parent) / name
                content = _content(path, _MOST_BYTES - packed.tell())
                if content is not None:
                    member = str(path.relative_to(folder))
                    archive.writestr(zipfile.ZipInfo(member, date_time=_DATE), content)
    return packed.getvalue()


def _content(path: Path, most: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return None
        if info.st_size > most:
            raise ValueError(f"the program's classes are larger than {_MOST_BYTES >> 20} MB")
        return file.read(info.st_size)
