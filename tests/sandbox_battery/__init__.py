"""The command `sandbox battery`, which looks for files that a program leaves in /tmp."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

_OWN_FOLDERS = [
    *("unshare", "--mount", "sh", "-c"),
    'for folder in /tmp /var/tmp /dev/shm; do mount -t tmpfs own "$folder"; done; exec "$@"',
    "sh",
]
_PYTHON = [sys.executable, "-m", "coding_model_project"]


def battery(cases: Path, *options: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of the command, which sees no other test's files."""
    command = [*_prefix(), *_PYTHON, "sandbox", "battery", "/dev/stdin", *options]
    with cases.open() as file:
        done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@cache
def _prefix() -> list[str]:
    """Folders of its own need rights, and an interpreter that lies elsewhere."""
    try:
        done = subprocess.run([*_OWN_FOLDERS, *_PYTHON, "--help"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return [] if done.returncode else _OWN_FOLDERS
