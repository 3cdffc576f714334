"""The samples of a run: rollouts.jsonl has the judged ones, ungradable.jsonl all others, with the reason.

rollouts.jsonl is rotated and compressed when large. Each line is a JSON object with the fields of
`Rollout`. A step repeated after a resume appears twice; `read_rollouts` returns its later version.

Samples in ungradable.jsonl are dropped from the batch. Judges on several nodes write there. Network file
systems lose rows that two nodes append to one file at the same time. So each node except the attempt's
own has a separate file, `ungradable.HOST-MACHINE.jsonl`. Readers merge them.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import heapq
import os
import queue
import re
import shutil
import socket
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from coding_model_project.atomic import replacing
from coding_model_project.errors import DataError
from coding_model_project.runs.folder import Attempt, RunFolder
from coding_model_project.runs.lease import machine, refresh

ROTATE_BYTES = 64 * 2**20
ROLLOUTS = "rollouts.jsonl"
_PART = re.compile(r"rollouts\.(\d+)\.jsonl\.gz")
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of reading a damaged packed part."""


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
        if is_packed(folder):
            self._path.unlink(missing_ok=True)
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
                    _rotate(self._path)
            except Exception as error:  # noqa: BLE001 - `write` raises it in the caller's thread
                self._error = error


def end_last_line(path: Path) -> None:
    """End a line that a kill truncated, so that the next row starts a new line."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _rotate(path: Path) -> None:
    """Compress rollouts.jsonl to rollouts.0001.jsonl.gz, or the next number."""
    target = packed_part(path.parent, max(_parts(path.parent), default=0) + 1)
    with (
        replacing(target) as partial,
        path.open("rb") as plain,
        gzip.open(partial, "wb", compresslevel=6) as packed,
    ):
        shutil.copyfileobj(plain, packed)
    path.unlink()


def packed_part(folder: Path, number: int) -> Path:
    """Return the path of a rotated file; numbers start at 1."""
    return folder / f"rollouts.{number:04d}.jsonl.gz"


def is_packed(folder: Path) -> bool:
    """Return whether rollouts.jsonl is also the last packed part; it is deleted once it is packed."""
    with suppress(FileNotFoundError), (folder / ROLLOUTS).open("rb") as lines:
        return _is_last_part(folder, lines)
    return False


def _is_last_part(folder: Path, lines: Iterable[bytes]) -> bool:
    if not (parts := _parts(folder)):
        return False
    try:
        with gzip.open(parts[max(parts)]) as packed:
            return all(one == other for one, other in zip_longest(packed, lines))
    except DAMAGED:  # its readers report it
        return False


def _parts(folder: Path) -> dict[int, Path]:
    """Return the packed parts by their number, in order."""
    found = ((_PART.fullmatch(path.name), path) for path in folder.glob("rollouts.*.jsonl.gz"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def read_all_rollouts(folder: Path) -> Iterator[Rollout]:
    """Read all rollouts, including both versions of repeated steps.

    Raises:
        DataError: a packed part is damaged.
    """
    return (Rollout(**row) for row in _rows(folder))


def read_rollouts(folder: Path) -> Iterator[Rollout]:
    """Read a run's rollouts in order; of a repeated step, those of the last attempt.

    A line truncated by a kill is skipped. The files are read twice, one row in memory at a time.

    Raises:
        DataError: a packed part is damaged.
    """
    last: dict[tuple[str, int], int] = {}
    for row in _rows(folder):
        key = row["split"], row["step"]
        last[key] = max(row["attempt"], last.get(key, 0))
    for row in _rows(folder):
        if row["attempt"] == last.get((row["split"], row["step"]), row["attempt"]):
            yield Rollout(**row)


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Read all parts, then the plain file, which a running run may pack at any time.

    Raises:
        DataError: a packed part is damaged.
    """
    last = 0
    while True:
        for number, path in _parts(folder).items():
            if number > last:
                with gzip.open(path) as lines:
                    yield from _parsed(lines, path)
                last = number
        with ExitStack() as opened:
            lines, leftover = None, False
            with suppress(FileNotFoundError):
                lines = opened.enter_context((folder / ROLLOUTS).open("rb"))
                leftover = _is_last_part(folder, lines)
                lines.seek(0)
            if max(_parts(folder), default=0) > last:
                continue  # it was packed before it was opened, or while
            if lines is not None and not leftover:
                yield from _parsed(lines, folder / ROLLOUTS)
            return


def _parsed(lines: Iterable[bytes], path: Path) -> Iterator[dict[str, Any]]:
    try:
        for line in lines:
            with suppress(orjson.JSONDecodeError):  # truncated by a kill
                yield orjson.loads(line)
    except DAMAGED as error:
        raise DataError(f"{path}: damaged ({error})") from error


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
    return heapq.merge(*map(_ungradable_in, files), key=lambda row: row.at)


def _ungradable_in(path: Path) -> Iterator[Ungradable]:
    with path.open("rb") as lines:
        yield from (Ungradable(**row) for row in _parsed(lines, path))


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
