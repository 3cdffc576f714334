"""Remains of a run on this machine: processes, descriptors, mounts and files."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import psutil

from coding_model_project.isolation.processes import TOKEN, carriers

MARK = f"soak{secrets.token_hex(6)}"
"""Part of the name of every file and process that a program tries to leave."""


class Remains:
    """The state of the machine before a run whose processes inherit this one's environment."""

    def __init__(self, *folders: str) -> None:
        """Args:
        folders: where files with `MARK` in their names are looked for.
        """
        self._folders = folders
        self._token = os.environ[TOKEN] = secrets.token_hex(8)
        self._descriptors, self._mounts = psutil.Process().num_fds(), _mounts()

    def found(self) -> Iterator[str]:
        """Yield a line for each kind of remains."""
        if files := [str(p) for folder in self._folders for p in Path(folder).glob(f"*{MARK}*")]:
            yield f"files: {files[:5]}"
        if ours := carriers(self._token):
            yield f"processes of ours: {ours}"
        for process in psutil.process_iter(["cmdline"]):
            if MARK in " ".join(process.info["cmdline"] or ()):
                yield f"a program's process: {process.info['cmdline']}"
        if left := _mounts() - self._mounts:
            yield f"mounts were left, or made by others: {sorted(left)[:5]}"
        if (now := psutil.Process().num_fds()) > self._descriptors + 1:  # psutil keeps /proc open
            yield f"descriptors: {self._descriptors} before, {now} after"


def resident_mb(*processes: psutil.Process) -> float:
    """Return their resident memory in MiB."""
    return sum(one.memory_info().rss for one in processes) / 2**20


def _mounts() -> set[str]:
    """Return the mount points of this process."""
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
