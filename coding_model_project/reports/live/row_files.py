"""Samples of a run as lines of files that may be written to meanwhile, and where each line is."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import orjson

from coding_model_project.errors import DataError
from coding_model_project.evaluation.outputs import rollout_of
from coding_model_project.evaluation.results import COMPLETIONS, RESULTS, Generated, Key, Result
from coding_model_project.runs.rollouts import ROLLOUTS, Rollout, packed_part

Place = tuple[int, ...]
"""Where a sample's lines are, as the `Log` that gave it reads it."""


class WrittenAnewError(Exception):
    """A file is not the one of which a part was read: what was read is void."""


class Log(Protocol):
    """The samples of one run."""

    def new_rows(self) -> Iterator[tuple[Place, Rollout]]:
        """Read the samples that were written since the last call.

        Raises:
            WrittenAnewError: start again with a new log.
            DataError: a line is not a sample.
        """
        ...

    def read(self, place: Place) -> Rollout:
        """Read one sample again."""
        ...


def log_of(folder: Path) -> Log:
    """Return the samples of a training, or of an evaluation, finished or not."""
    finished = (folder / ROLLOUTS).exists() or packed_part(folder, 1).exists()
    is_evaluation = (folder / RESULTS).exists() or (folder / COMPLETIONS).exists()
    return EvaluationLog(folder) if is_evaluation and not finished else RolloutLog(folder)


@dataclass(slots=True)
class GrowingFile:
    """A file of JSON lines that others append to. A last line without its end is left for later."""

    path: Path
    end: int = 0
    """Bytes that were read."""
    inode: int = 0

    def new_lines(self) -> Iterator[tuple[int, int, Any]]:
        """Read the lines that are new: offset, bytes and value. A missing file has none.

        Raises:
            WrittenAnewError: another file has this name now, or it was cut.
        """
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            found = os.fstat(file.fileno())
            if self.end and (found.st_ino != self.inode or found.st_size < self.end):
                raise WrittenAnewError
            self.inode = found.st_ino
            yield from self.lines_of(file)

    def lines_of(self, file: IO[bytes] | gzip.GzipFile) -> Iterator[tuple[int, int, Any]]:
        """Read the new lines of the same content in another file."""
        file.seek(self.end)
        for line in file:
            if not line.endswith(b"\n"):
                return
            start, self.end = self.end, self.end + len(line)
            with suppress(orjson.JSONDecodeError):  # cut short by a kill
                yield start, len(line), orjson.loads(line)


@dataclass(slots=True)
class RolloutLog:
    """rollouts.jsonl, and the compressed parts that it was rotated into.

    A place is part, offset and bytes.
    """

    folder: Path
    _part: int = 1
    _file: GrowingFile = field(init=False)
    _rotated: int = 0
    """Inode of the part before, which has its old name for a moment after it was compressed."""

    def __post_init__(self) -> None:
        self._file = GrowingFile(self.folder / ROLLOUTS)

    def new_rows(self) -> Iterator[tuple[Place, Rollout]]:
        while (packed := packed_part(self.folder, self._part)).exists():
            try:
                with gzip.open(packed) as file:
                    yield from self._rows(self._file.lines_of(file))
            except (EOFError, gzip.BadGzipFile) as error:
                raise DataError(f"{packed}: damaged ({error})") from error
            self._part, self._rotated = self._part + 1, self._file.inode
            self._file = GrowingFile(self._file.path)
        with suppress(FileNotFoundError):
            before = packed_part(self.folder, self._part - 1)
            found = self._file.path.stat()
            if found.st_ino == self._rotated and found.st_mtime <= before.stat().st_mtime:
                return
        try:
            yield from self._rows(self._file.new_lines())
        except WrittenAnewError:
            if not packed.exists():  # else it was rotated just now: the next call reads on there
                raise

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
    """results.jsonl and completions.jsonl of an evaluation that has not ended: prompts come at its end.

    A place is offset and bytes in the first, then in the second.
    """

    folder: Path
    _results: GrowingFile = field(init=False)
    _completions: GrowingFile = field(init=False)
    _unjudged: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._results = GrowingFile(self.folder / RESULTS)
        self._completions = GrowingFile(self.folder / COMPLETIONS)

    def new_rows(self) -> Iterator[tuple[Place, Rollout]]:
        if (self.folder / ROLLOUTS).exists():  # it has ended: these hold the prompts, too
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
