"""`fork_server.c`, compiled once in less than a second, and kept in the user's cache.

Only the host imports this module. In a zygote it would import `subprocess` and `tempfile`, whose handlers
run in every forked process (`zygote`).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from coding_model_project.sandbox.embedded.languages import binaries

SOURCE = Path(__file__).with_name("fork_server.c")
FLAGS = ("-O2", "-shared", "-fPIC", "-Wl,-z,now")
_BUILD_S = 60.0


@functools.lru_cache
def library() -> Path | None:
    """Return the compiled loop, compiling it if necessary; None if that is impossible."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    info = Path(compiler).resolve().stat()
    made_from = (SOURCE.read_bytes(), compiler, info.st_size, info.st_mtime_ns, FLAGS)
    path = (
        binaries.cache_folder()
        / f"fork_server-{hashlib.sha256(repr(made_from).encode()).hexdigest()}.so"
    )
    if path.exists():
        return path
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
            made = Path(folder) / path.name
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=_BUILD_S)
            ctypes.PyDLL(str(made))  # raises OSError if it does not load
            with made.open("rb") as file:
                os.fsync(file.fileno())  # else a power cut could leave the name without the content
            made.replace(path)
    except (OSError, subprocess.SubprocessError):
        return None
    return path


def summary() -> str:
    """Return a phrase that says how tests are forked here."""
    if library() is not None:
        return "by compiled code"
    return "by Python code: with a C compiler (apt-get install gcc libc6-dev) they would cost less"
