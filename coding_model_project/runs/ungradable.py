"""ungradable.jsonl: every sample of a run that could not be judged, with the reason.

These samples are dropped from the batch: rollouts.jsonl contains the samples trained on, this file the
dropped ones.

Judges on several nodes write here. Network file systems lose rows that two nodes append to one file at
the same time. So each node except the attempt's own has a separate file, `ungradable.HOST-MACHINE.jsonl`.
Readers merge them.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from coding_model_project.runs.folder import Attempt, RunFolder
from coding_model_project.runs.lease import machine, refresh

_NAME = "ungradable.jsonl"
_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungradable:
    """A sample that could not be judged."""

    step: int
    problem: str
    sample: str
    """Prefix of the `sample` that it would have had among the rollouts of a training step."""
    error: str
    """Name of the exception (`errors`)."""
    reason: str
    judge_s: float = 0.0
    """Wall seconds that the judge spent on it."""
    at: float
    """Seconds since the epoch, by the judging node's clock."""
    host: str = ""
    """The judging node's name."""
    attempt: int = 0
    """Number of the run's attempt, which `note` sets. A resumed run takes some steps again."""


def note(folder: Path, row: Ungradable) -> None:
    """Append a row of the last attempt atomically, also with several workers on this node.

    Raises:
        OSError: the row could not be written.
    """
    refresh(folder / "logs")
    attempts = RunFolder(folder).attempts()
    last = attempts[-1] if attempts else None
    line = orjson.dumps(replace(row, attempt=last.number if last else 0)) + b"\n"
    file = os.open(folder / _file_name(last), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        end = os.fstat(file).st_size
        if end and os.pread(file, 1, end - 1) != b"\n":  # a full disk truncated the last row
            line = b"\n" + line
        written = os.write(file, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / _NAME))
    finally:
        os.close(file)


def _file_name(attempt: Attempt | None) -> str:
    """Return the name of the file for this node's rows."""
    here = machine()
    if attempt is None or attempt.machine in (None, here):
        return _NAME
    digest = hashlib.blake2b(here.encode(), digest_size=4).hexdigest()
    return f"ungradable.{socket.gethostname()}-{digest}.jsonl"


def reason_of(error: Exception) -> str:
    """Return an error's message in one line of readable length."""
    return " ".join(str(error).split())[:_REASON_CHARACTERS]


def read_ungradable(folder: Path) -> Iterator[Ungradable]:
    """Read the rows of all nodes in order of time; skip lines truncated by a kill."""
    files = sorted(folder.glob("ungradable*.jsonl"))
    return heapq.merge(*map(_rows, files), key=lambda row: row.at)


def _rows(path: Path) -> Iterator[Ungradable]:
    with path.open("rb") as lines:
        for line in lines:
            with suppress(orjson.JSONDecodeError):
                yield Ungradable(**orjson.loads(line))


def read_attempt(folder: Path, attempt: int) -> Iterator[Ungradable]:
    """Read an attempt's rows, including those that other nodes have just written."""
    refresh(folder)
    return (row for row in read_ungradable(folder) if row.attempt == attempt)


def last_reason(folder: Path, attempt: int) -> str:
    """Return the error, node and reason of an attempt's last row; empty if there is none."""
    last = deque(read_attempt(folder, attempt), maxlen=1)
    if not last:
        return ""
    where = f" on {last[0].host}" if last[0].host not in ("", socket.gethostname()) else ""
    return f"{last[0].error}{where}: {last[0].reason}"
