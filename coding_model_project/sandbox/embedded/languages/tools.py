"""Queries of a machine's compilers and interpreters."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def which(name: str) -> str | None:
    """Return the path of a command, through all links; None if it is not installed."""
    found = shutil.which(name)
    return str(Path(found).resolve()) if found else None


def output_or_none(*command: str, variables: Mapping[str, str] | None = None) -> str | None:
    """Return a tool's output; None if it cannot be run, or fails."""
    try:
        return output(*command, variables=variables).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def output(
    *command: str,
    errors: bool = False,
    timeout_s: float = 30.0,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return a tool's standard output, or with `errors` its standard error.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be run, or failed.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=True,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", **(variables or {})},
    )
    return done.stderr if errors else done.stdout


def last_words(error: Exception) -> str:
    """Return the last line of what a tool that failed printed, or of the error."""
    lines = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
    return "".join(lines)[-200:]


def stamp(path: str) -> list[object]:
    """Return values that change when a tool is replaced: its path, size and time."""
    info = Path(path).resolve().stat()
    return [path, info.st_size, info.st_mtime_ns]


def library_folders(linker: Sequence[str]) -> list[str]:
    """Return the folders of the files in a linker's command."""
    paths: list[Path] = []
    for word in linker:
        if word.startswith("-L"):
            paths.append(Path(word[2:]))
        elif word.startswith("/") and word.endswith((".o", ".rlib")):
            paths.append(Path(word).parent)
    return list(dict.fromkeys(str(path.resolve()) for path in paths if path.is_dir()))


def through_loader(program: Path, libraries: Path) -> list[str]:
    """Return the start of a command that runs a program through its dynamic loader, with a folder of
    libraries that the program would otherwise find by its own path."""
    with program.open("rb") as file:
        named = re.search(rb"/[\w./-]*/ld-[\w.-]+\.so[.\d]*\0", file.read(1 << 14))
    if named is None:
        return [str(program)]
    return [named[0][:-1].decode(), "--library-path", str(libraries), str(program)]
