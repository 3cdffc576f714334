"""Append-only files of JSON lines that survive a kill at any moment, and results kept by content."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import orjson

from coding_model_project.atomic import replacing
from coding_model_project.errors import ConfigError, DataError, StorageError
from coding_model_project.grading.base import Grader
from coding_model_project.grading.brief import plain_verdict, verdict_of
from coding_model_project.grading.cache import problem_digest
from coding_model_project.runs.folder import full_disk
from coding_model_project.types import Problem, Verdict

Row = TypeVar("Row")
"""A dataclass of plain values."""


def to_line(row: Any) -> bytes:
    """Encode a row as a JSON line."""
    return orjson.dumps(asdict(row)) + b"\n"


def read_rows(path: Path, kind: type[Row]) -> Iterator[Row]:
    """Read the rows of a file, which may be written to concurrently.

    Skips a last line without a line end, which a kill leaves behind.

    Raises:
        DataError: a line is not a row; names the file and the line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = kind(**orjson.loads(line))
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number}: damaged ({error}); remove the line to generate its "
                    "sample again"
                ) from error
            yield row


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Convert failures to write below a folder.

    Raises:
        StorageError: a write failed; names the file, and a full disk.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename or folder}: cannot be written ({error.strerror}){full_disk(folder)}"
        ) from error


class Journal(Generic[Row]):
    """A file of rows, in which every line is complete.

    Entering cuts off a last line that a kill left incomplete.

    Args:
        kind: dataclass of the rows.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path, kind: type[Row]) -> None:
        self.path = path
        self._kind = kind
        self._file = -1
        self._size = 0

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._file).st_size
            end = self._end_of_lines()
            if end < self._size:
                os.ftruncate(self._file, end)
                self._size = end
            os.lseek(self._file, self._size, os.SEEK_SET)
        except OSError as error:
            self._close()
            raise self._failed(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def rows(self) -> list[Row]:
        """Return all rows so far.

        Raises:
            DataError: as `read_rows`.
        """
        return list(read_rows(self.path, self._kind))

    def append(self, row: Row) -> None:
        """Write one row, completely or not at all.

        Raises:
            StorageError: the row cannot be written; the file is unchanged.
        """
        line = to_line(row)
        try:
            written = os.write(self._file, line)
            if written < len(line):  # probably a full disk: the second write raises the error
                written += os.write(self._file, line[written:])
                if written < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise self._failed(error) from error
        self._size += len(line)

    def rewrite(self, rows: Iterable[Row]) -> None:
        """Replace all rows atomically: a kill leaves either the old or the new rows."""
        self._close()
        try:
            with replacing(self.path) as partial, partial.open("wb") as file:
                file.writelines(map(to_line, rows))
        except OSError as error:
            raise self._failed(error) from error
        self.__enter__()

    def _end_of_lines(self) -> int:
        """Return the number of bytes up to the end of the last complete line."""
        end = self._size
        while end:
            start = max(0, end - (1 << 16))
            found = os.pread(self._file, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self.path}: cannot be written ({error.strerror}){full_disk(self.path.parent)}"
        )


# ── results kept by content ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A line of a journal."""

    key: str
    """Digest of everything that the result depends on."""
    result: dict[str, Any]


class KeptResults:
    """A journal of results, including those of earlier attempts."""

    def __init__(self, journal: Journal[KeptResult] | None) -> None:
        self._journal = journal
        self.known: Mapping[str, dict[str, Any]] = (
            {row.key: row.result for row in journal.rows()} if journal else {}
        )

    def keep(self, key: str, result: dict[str, Any]) -> None:
        """Append a result.

        Raises:
            StorageError: the journal cannot be written.
        """
        if self._journal is not None:
            self._journal.append(KeptResult(key, result))


@contextmanager
def kept_results(path: Path | None) -> Iterator[KeptResults]:
    """Open a journal exclusively for this process; without a path, store nothing.

    Raises:
        ConfigError: another command is writing to it.
        DataError: a line is damaged.
        StorageError: the journal cannot be written.
    """
    if path is None:
        yield KeptResults(None)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    except OSError as error:
        raise StorageError(
            f"--journal={path}: cannot be written ({error.strerror}){full_disk(path.parent)}"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"--journal={path}: another command is writing to it; wait for it, or pass another file"
            ) from error
        with Journal(path, KeptResult) as journal:
            yield KeptResults(journal)


class KeptGrader:
    """A `grading.base.Grader` that stores verdicts and never grades a completion twice.

    Verdicts of Harbor tasks are not stored, because their folders may change.

    Args:
        settings: everything that a verdict depends on besides problem and completion.
    """

    def __init__(self, inner: Grader, kept: KeptResults, settings: str) -> None:
        self._inner, self._kept = inner, kept
        self._settings = settings.encode()

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """See `grading.base.Grader`."""
        digest = hashlib.sha256(self._settings + problem_digest(problem))
        digest.update(completion.encode("utf-8", "surrogatepass"))
        key = digest.hexdigest()
        if (known := self._kept.known.get(key)) is not None:
            return verdict_of(known)
        verdict = await self._inner.grade(problem, completion)
        if problem.task is None:
            self._kept.keep(key, plain_verdict(verdict))
        return verdict
