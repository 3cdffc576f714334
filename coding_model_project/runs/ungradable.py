"""ungradable.jsonl: every sample of a run that no verdict could be given for, and why.

These samples are in no batch: rollouts.jsonl holds what was trained on, this file what was left out.

Judges of several nodes write here. Network file systems lose rows that two nodes append to one file at
the same time, so each node but the one that runs the attempt has a file of its own,
`ungradable.HOST-MACHINE.jsonl`. All readers see them as one.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.lease import machine

_NAME = "ungradable.jsonl"
_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungradable:
    """One sample that the judge could not judge."""

    step: int
    problem: str
    sample: str
    """Begins the `sample` it would have had among the rollouts of a training step."""
    error: str
    """The exception's name (`errors`)."""
    reason: str
    at: float
    """Seconds since the epoch, by the clock of the node that judged."""
    host: str = ""
    """That node's name."""


def note(folder: Path, row: Ungradable) -> None:
    """Append a row, whole even when several workers of this node do so at once.

    Raises:
        OSError: it could not be written.
    """
    line = orjson.dumps(row) + b"\n"
    file = os.open(_own(folder), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        end = os.fstat(file).st_size
        if end and os.pread(file, 1, end - 1) != b"\n":  # a full disk took half a row
            line = b"\n" + line
        written = os.write(file, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / _NAME))
    finally:
        os.close(file)


def _own(folder: Path) -> Path:
    """Return the file that this node's rows go to."""
    _refresh(folder / "logs")
    attempts = RunFolder(folder).attempts()
    here = machine()
    if not attempts or attempts[-1].machine in (None, here):
        return folder / _NAME
    digest = hashlib.blake2b(here.encode(), digest_size=4).hexdigest()
    return folder / f"ungradable.{socket.gethostname()}-{digest}.jsonl"


def _refresh(folder: Path) -> None:
    """Make the next listing of a folder current.

    An NFS client trusts its own for up to a minute, unless it has changed the folder itself.
    """
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=folder, prefix=".refresh-"):
        pass


def reason_of(error: Exception) -> str:
    """An error's message in one line of readable length."""
    return " ".join(str(error).split())[:_REASON_CHARACTERS]


def read_ungradable(folder: Path) -> Iterator[Ungradable]:
    """All rows of all nodes, by their time; a line cut short by a kill is left out."""
    files = sorted(folder.glob("ungradable*.jsonl"))
    return heapq.merge(*map(_rows, files), key=lambda row: row.at)


def _rows(path: Path) -> Iterator[Ungradable]:
    with path.open("rb") as lines:
        for line in lines:
            with suppress(orjson.JSONDecodeError):
                yield Ungradable(**orjson.loads(line))


def read_current(folder: Path) -> Iterator[Ungradable]:
    """Read all rows, with those that other nodes have only just written."""
    _refresh(folder)
    return read_ungradable(folder)


def last_reason(folder: Path) -> str:
    """The reason why the last of them could not be judged, and where; empty if there is none."""
    last = deque(read_current(folder), maxlen=1)
    if not last:
        return ""
    where = f" on {last[0].host}" if last[0].host not in ("", socket.gethostname()) else ""
    return f"{last[0].error}{where}: {last[0].reason}"
