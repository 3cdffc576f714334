"""This package as an archive, for images without it."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from coding_model_project.isolation.carried_source import PACKAGE

_LEFT_OUT = (
    "cli",
    "doctor",
    "handover",
    "integrations",
    "launch",
    "studies",
    "synthetic",
    "verl_ext",
)
"""Folders that neither verifier nor agent needs. `synthetic` could also generate the test problems."""
_KEPT = ("synthetic/__init__.py", "synthetic/tinycode_config.py")
"""Files of these folders that the configuration's schema imports."""
_SUFFIXES = (".py", ".c", ".yaml", ".json", ".html", ".css", ".js", ".jinja")


@lru_cache(maxsize=1)
def package_archive() -> bytes:
    """Return the package as a .tar.gz. The same sources give the same bytes."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,  # type: ignore[call-overload]
    ):
        for name, path in _sources():
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"{PACKAGE}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def _sources() -> Iterator[tuple[str, Path]]:
    root = Path(str(files(PACKAGE)))
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        left_out = name.split("/")[0] in _LEFT_OUT and name not in _KEPT
        if path.is_file() and path.suffix in _SUFFIXES and not left_out:
            yield name, path
