"""Files of JSON lines that are appended to as things happen, and survive a kill at any moment."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import orjson

from coding_model_project.errors import DataError, StorageError
from coding_model_project.runs.folder import full_disk


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Failures to write below a folder, as what they are.

    Raises:
        StorageError: names the file, and a full disk.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename or folder}: cannot be written ({error.strerror}){full_disk(folder)}"
        ) from error


class Journal:
    """One file: a line that is there is whole.

    Entering cuts off a last line that a kill left half-written.

    Raises:
        StorageError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self._size = 0

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._file).st_size
            whole = self._end_of_lines()
            if whole < self._size:
                os.ftruncate(self._file, whole)
                self._size = whole
            os.lseek(self._file, self._size, os.SEEK_SET)
        except OSError as error:
            self._close()
            raise self._failed(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def rows(self) -> list[dict[str, Any]]:
        """All lines so far.

        Raises:
            DataError: one of them is no JSON object; names file and line.
        """
        rows = []
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = orjson.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError("not an object")
                except ValueError as error:
                    raise DataError(
                        f"{self.path}, line {number}: damaged ({error}); remove the line to have its "
                        "sample made again"
                    ) from error
                rows.append(row)
        return rows

    def append(self, line: bytes) -> None:
        """Write one line, whole or not at all.

        Args:
            line: with its end.

        Raises:
            StorageError: it cannot be written; the file is as before.
        """
        try:
            written = os.write(self._file, line)
            if written < len(line):  # the disk is full; the next write would say so
                written += os.write(self._file, line[written:])
                if written < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise self._failed(error) from error
        self._size += len(line)

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Put other lines in the place of all there are; a kill leaves the old ones or the new."""
        self._close()
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            with partial.open("wb") as file:
                file.writelines(lines)
            partial.replace(self.path)
        except OSError as error:
            raise self._failed(error) from error
        self.__enter__()

    def _end_of_lines(self) -> int:
        """Bytes up to the end of the last whole line."""
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
