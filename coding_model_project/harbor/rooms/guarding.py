"""Installation of `_harbor_guard` into every Python of a room."""

from __future__ import annotations

from pathlib import Path

from coding_model_project.harbor.rooms.root import BASE, PACKAGES
from coding_model_project.isolation import linux

_GUARD = Path(__file__).parent / "_harbor_guard"
_LAYER, _START = "/guard", "/guard_start"
_FOLDERS = (
    "usr/lib/python3/dist-packages",
    "usr/lib/python3.*/site-packages",
    "usr/local/lib/python3.*/dist-packages",
    "usr/local/lib/python3.*/site-packages",
    "python/lib/python3.*/site-packages",
    PACKAGES,
)
"""Folders in which interpreters look for .pth files."""


def sources() -> dict[str, str]:
    """Read the guard's files by their path in a module folder, while the host's files are visible."""
    files = {f"{_GUARD.name}.pth": f"import {_GUARD.name}\n"}
    for path in _GUARD.glob("*.py"):
        files[f"{_GUARD.name}/{path.name}"] = path.read_text()
    return files


def lay(files: dict[str, str]) -> None:
    """Add the files to every folder of the base in which interpreters look for .pth files.

    Raises:
        OSError: the kernel does not allow overlays in user namespaces (before Linux 5.11).
    """
    for name, text in files.items():
        path = Path(_LAYER, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # Python reads no .pth files in PYTHONPATH folders, but every interpreter imports this module.
    start = Path(_START, "sitecustomize.py")
    start.parent.mkdir(parents=True, exist_ok=True)
    start.write_text(f"import {_GUARD.name}\n")
    for pattern in _FOLDERS:
        for folder in Path(BASE).glob(pattern):
            layers = f"{_START}:{_LAYER}" if pattern == PACKAGES else _LAYER
            data = f"lowerdir={layers}:{folder}"
            linux.mount("guard", str(folder), "overlay", linux.MS_RDONLY, data).make()
