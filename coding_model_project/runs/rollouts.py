"""The samples of a run: rollouts.jsonl has the judged ones, ungradable.jsonl all others, with the reason.

A full rollouts.jsonl is renamed to rollouts.0001.jsonl, and so on. Each line is a JSON object with the
fields of `Rollout`. A step repeated after a resume appears twice; `read_rollouts` returns its later
version.

Samples in ungradable.jsonl are dropped from the batch. Judges on several nodes write there. Network file
systems lose rows that two nodes append to one file at the same time. So each node except the attempt's
own has a separate file, `ungradable.HOST-MACHINE.jsonl`. Readers merge them.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import queue
import re
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from coding_model_project.errors import DataError
from coding_model_project.runs.folder import Attempt, RunFolder
from coding_model_project.runs.lease import machine, refresh

ROTATE_BYTES = 64 * 2**20
ROLLOUTS = "rollouts.jsonl"
_FULL = re.compile(r"rollouts\.(\d+)\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One completion, its verdict and its reward."""

    step: int
    attempt: int
    split: str
    """Either `train` or `validation`."""
    problem: str
    sample: str
    """Identifier of a sample among those of the same problem and step."""
    prompt: str
    completion: str
    tokens: int
    reward: float
    reward_parts: Mapping[str, float]
    verdict: Mapping[str, Any]
    """The verdict as `brief` returns it."""
    generated_at: float
    """Seconds since the epoch, as is `graded_at`."""
    graded_at: float
    advantage: float | None = None
    """The mean advantage over its tokens; None in validation."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failing_test(self) -> str:
        """Input and details of the first failing test; empty if there is none."""
        return "\n".join(filter(None, (self.verdict.get("input"), self.verdict.get("detail"))))


class RolloutWriter:
    """A writer that appends rollouts from its own thread, so that steps do not wait for the disk.

    The next `write` or `close` raises the thread's error, so no row is lost silently.
    """

    def __init__(self, folder: Path, rotate_bytes: int = ROTATE_BYTES) -> None:
        self._path = folder / ROLLOUTS
        end_last_line(self._path)
        self._rotate_bytes = rotate_bytes
        self._queue: queue.Queue[Iterable[Rollout] | None] = queue.Queue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)
        self._thread.start()

    def write(self, rollouts: Iterable[Rollout]) -> None:
        """Queue rows; the writer's thread runs the iterable, including work such as decoding.

        Raises:
            OSError: an earlier row could not be written.
            Exception: an earlier iterable raised it.
        """
        if self._error is not None:
            raise self._error
        self._queue.put(rollouts)

    def close(self) -> None:
        """Wait until all rows are written.

        Raises:
            OSError, Exception: as `write`.
        """
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (rollouts := self._queue.get()) is not None:
            try:
                lines = b"".join(orjson.dumps(row) + b"\n" for row in rollouts)
                with self._path.open("ab") as file:
                    file.write(lines)
                if self._path.stat().st_size > self._rotate_bytes:
                    number = max(_full_files(self._path.parent), default=0) + 1
                    self._path.rename(full_file(self._path.parent, number))
            except Exception as error:  # noqa: BLE001 - `write` raises it in the caller's thread
                self._error = error


def end_last_line(path: Path) -> None:
    """End a line that a kill truncated, so that the next row starts a new line."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")


def full_file(folder: Path, number: int) -> Path:
    """Return the path of a full file of rollouts; numbers start at 1."""
    return folder / f"rollouts.{number:04d}.jsonl"


def _full_files(folder: Path) -> dict[int, Path]:
    """Return the full files by their number, in order.

    Raises:
        DataError: some are packed, as in runs of older versions.
    """
    if packed := next(folder.glob("rollouts.[0-9][0-9][0-9][0-9].jsonl.gz"), None):
        raise DataError(f"{packed}: packed by an older version; run: gunzip {packed.parent}/*.gz")
    found = ((_FULL.fullmatch(path.name), path) for path in folder.glob("rollouts.*.jsonl"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def read_all_rollouts(folder: Path) -> Iterator[Rollout]:
    """Read all rollouts, including both versions of repeated steps.

    Raises:
        DataError: an older version packed them.
    """
    return (Rollout(**row) for row in _rows(folder))


def read_rollouts(folder: Path) -> Iterator[Rollout]:
    """Read a run's rollouts in order; of a repeated step, those of the last attempt.

    A line truncated by a kill is skipped. The files are read twice, one row in memory at a time.

    Raises:
        DataError: an older version packed them.
    """
    last: dict[tuple[str, int], int] = {}
    for row in _rows(folder):
        key = row["split"], row["step"]
        last[key] = max(row["attempt"], last.get(key, 0))
    for row in _rows(folder):
        if row["attempt"] == last.get((row["split"], row["step"]), row["attempt"]):
            yield Rollout(**row)


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the full files, then the last one, which a running run may rename at any time."""
    with ExitStack() as opened:
        last, inode = None, -1
        with suppress(FileNotFoundError):
            last = opened.enter_context((folder / ROLLOUTS).open("rb"))
            inode = os.fstat(last.fileno()).st_ino
        for path in _full_files(folder).values():
            if path.stat().st_ino != inode:
                with path.open("rb") as lines:
                    yield from _parsed(lines)
        yield from _parsed(last or ())


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(orjson.JSONDecodeError):  # truncated by a kill
            yield orjson.loads(line)


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
    if attempt is None or attempt.machine == here:
        return _NAME
    digest = hashlib.blake2b(here.encode(), digest_size=4).hexdigest()
    return f"ungradable.{socket.gethostname()}-{digest}.jsonl"


def reason_of(error: Exception) -> str:
    """Return an error's message in one line of readable length."""
    return " ".join(str(error).split())[:_REASON_CHARACTERS]


def read_ungradable(folder: Path) -> Iterator[Ungradable]:
    """Read the rows of all nodes in order of time; skip lines truncated by a kill."""
    files = sorted(folder.glob("ungradable*.jsonl"))
    return heapq.merge(*map(_ungradable_in, files), key=lambda row: row.at)


def _ungradable_in(path: Path) -> Iterator[Ungradable]:
    with path.open("rb") as lines:
        yield from (Ungradable(**row) for row in _parsed(lines))


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
