"""Samples of a run as lines of files that may be written to concurrently, with their places."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import orjson

from coding_model_project.errors import DataError
from coding_model_project.evaluation.outputs import rollout_of
from coding_model_project.evaluation.results import COMPLETIONS, RESULTS, Generated, Key, Result
from coding_model_project.runs.rollouts import DAMAGED, ROLLOUTS, Rollout, is_packed, packed_part

Place = tuple[int, ...]
"""Place of a sample's lines, in the format of its `Log`."""


class WrittenAnewError(Exception):
    """Raised if a file was replaced since a part of it was read, which invalidates that part."""


class Log(Protocol):
    """A reader of a run's samples."""

    def new_rows(self) -> Iterator[tuple[Place, Rollout]]:
        """Read the samples written since the last call.

        Raises:
            WrittenAnewError: a file was replaced; start again with a new log.
            DataError: a line is not a sample.
        """
        ...

    def read(self, place: Place) -> Rollout:
        """Read one sample again."""
        ...


def log_of(folder: Path) -> Log:
    """Return the log of a finished or running training run or evaluation."""
    finished = (folder / ROLLOUTS).exists() or packed_part(folder, 1).exists()
    is_evaluation = (folder / RESULTS).exists() or (folder / COMPLETIONS).exists()
    return EvaluationLog(folder) if is_evaluation and not finished else RolloutLog(folder)


@dataclass(slots=True)
class GrowingFile:
    """A file of JSON lines that others append to; an incomplete last line is read later."""

    path: Path
    end: int = 0
    """Number of bytes read."""
    inode: int = 0

    def new_lines(
        self, unless: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, int, Any]]:
        """Read new lines (offset, bytes, value); none if the file is missing.

        Args:
            unless: called once the file is open; if true, nothing is read.

        Raises:
            WrittenAnewError: the file was replaced or truncated.
        """
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            if unless():
                return
            found = os.fstat(file.fileno())
            if self.end and (found.st_ino != self.inode or found.st_size < self.end):
                raise WrittenAnewError
            self.inode = found.st_ino
            yield from self.lines_of(file)

    def lines_of(self, file: IO[bytes] | gzip.GzipFile) -> Iterator[tuple[int, int, Any]]:
        """Read new lines from an open file with the same content."""
        file.seek(self.end)
        for line in file:
            if not line.endswith(b"\n"):
                return
            start, self.end = self.end, self.end + len(line)
            with suppress(orjson.JSONDecodeError):  # truncated by a kill
                yield start, len(line), orjson.loads(line)


@dataclass(slots=True)
class RolloutLog:
    """A log of rollouts.jsonl and its rotated, compressed parts.

    A place is (part, offset, bytes).
    """

    folder: Path
    _part: int = 1
    _file: GrowingFile = field(init=False)

    def __post_init__(self) -> None:
        self._file = GrowingFile(self.folder / ROLLOUTS)

    def new_rows(self) -> Iterator[tuple[Place, Rollout]]:
        while (packed := packed_part(self.folder, self._part)).exists():
            try:
                with gzip.open(packed) as file:
                    yield from self._rows(self._file.lines_of(file))
            except DAMAGED as error:
                raise DataError(f"{packed}: damaged ({error})") from error
            self._part += 1
            self._file = GrowingFile(self._file.path)
        if not self._file.end and is_packed(self.folder):
            return
        # If it is rotated just now, the next call continues in the packed part.
        yield from self._rows(self._file.new_lines(unless=packed.exists))

    def _rows(self, lines: Iterator[tuple[int, int, Any]]) -> Iterator[tuple[Place, Rollout]]:
        for start, size, row in lines:
            try:
                yield (self._part, start, size), Rollout(**row)
            except TypeError as error:
                raise DataError(f"{self._file.path}, byte {start}: damaged ({error})") from error

    def read(self, place: Place) -> Rollout:
        part, start, size = place
        packed = packed_part(self.folder, part)
        with gzip.open(packed) if packed.exists() else self._file.path.open("rb") as file:
            file.seek(start)
            return Rollout(**orjson.loads(file.read(size)))


@dataclass(slots=True)
class EvaluationLog:
    """A log of a running evaluation's results.jsonl and completions.jsonl, without prompts.

    A place is (offset, bytes) in the first file, then in the second.
    """

    folder: Path
    _results: GrowingFile = field(init=False)
    _completions: GrowingFile = field(init=False)
    _unjudged: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._results = GrowingFile(self.folder / RESULTS)
        self._completions = GrowingFile(self.folder / COMPLETIONS)

    def new_rows(self) -> Iterator[tuple[Place, Rollout]]:
        if (
            self.folder / ROLLOUTS
        ).exists():  # the evaluation has ended, and its rollouts also have the prompts
            raise WrittenAnewError
        for start, size, row in self._results.new_lines():
            try:
                result = Result(**row)
            except TypeError as error:
                raise DataError(f"{self._results.path}, byte {start}: damaged ({error})") from error
            if result.key not in self._unjudged:
                self._unjudged |= {
                    Generated(**one).key: (at, n) for at, n, one in self._completions.new_lines()
                }
            if (at := self._unjudged.pop(result.key, None)) is None:
                raise DataError(f"{self._results.path}: sample {result.key} has no completion")
            place = (start, size, *at)
            yield place, self.read(place)

    def read(self, place: Place) -> Rollout:
        result = Result(**_line(self._results.path, *place[:2]))
        return rollout_of(Generated(**_line(self._completions.path, *place[2:])), result, prompt="")


def _line(path: Path, start: int, size: int) -> Any:
    with path.open("rb") as file:
        file.seek(start)
        return orjson.loads(file.read(size))
