"""rollouts.jsonl: every judged sample of a run, as it happened; rotated and compressed when large.

One JSON object per line, with the fields of `Rollout`. A step that was done again after a resume is
there twice; `read_rollouts` gives its later version.
"""

from __future__ import annotations

import gzip
import queue
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

ROTATE_BYTES = 64 * 2**20
ROLLOUTS = "rollouts.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One completion, what the judge said of it, and what it was worth."""

    step: int
    attempt: int
    split: str
    """train or validation."""
    problem: str
    sample: str
    """Tells the samples of one problem and step apart."""
    prompt: str
    completion: str
    tokens: int
    reward: float
    reward_parts: Mapping[str, float]
    verdict: Mapping[str, Any]
    """As `brief` gives it."""
    generated_at: float
    """Seconds since the epoch, as is `graded_at`."""
    graded_at: float
    advantage: float | None = None
    """What it was trained with, as a mean over its tokens; None in validation."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failing_test(self) -> str:
        """The first failing test: its input, and what came of it. Empty if there is none."""
        return "\n".join(filter(None, (self.verdict.get("input"), self.verdict.get("detail"))))


class RolloutWriter:
    """Appends rollouts from a thread of its own, so that a step does not wait for a disk.

    What it cannot write it raises at the next `write` or at `close`: nothing is lost in silence.
    """

    def __init__(self, folder: Path, rotate_bytes: int = ROTATE_BYTES) -> None:
        self._path = folder / ROLLOUTS
        end_last_line(self._path)
        self._rotate_bytes = rotate_bytes
        self._queue: queue.Queue[Iterable[Rollout] | None] = queue.Queue()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)
        self._thread.start()

    def write(self, rollouts: Iterable[Rollout]) -> None:
        """Hand rows over; an iterable that does work (decoding) does it in the writer's thread.

        Raises:
            OSError: an earlier row could not be written.
        """
        if self._error is not None:
            raise self._error
        self._queue.put(rollouts)

    def close(self) -> None:
        """Wait until all is written.

        Raises:
            OSError: it could not be.
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
            except OSError as error:
                self._error = error


def end_last_line(path: Path) -> None:
    """End a line that a kill cut short, so that the next one begins on its own."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _rotate(path: Path) -> None:
    """rollouts.jsonl becomes rollouts.0001.jsonl.gz, or the next number."""
    n_before = len(list(path.parent.glob("rollouts.*.jsonl.gz")))
    target = packed_part(path.parent, n_before + 1)
    partial = target.with_suffix(".partial")
    with path.open("rb") as plain, gzip.open(partial, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed)
    partial.replace(target)
    path.unlink()


def packed_part(folder: Path, number: int) -> Path:
    """The file that rollouts.jsonl was rotated into, from 1 on."""
    return folder / f"rollouts.{number:04d}.jsonl.gz"


def read_all_rollouts(folder: Path) -> Iterator[Rollout]:
    """Everything that was written, steps that were done again too."""
    return (Rollout(**row) for row in _rows(folder))


def read_rollouts(folder: Path) -> Iterator[Rollout]:
    """A run's rollouts in order, each step as its last attempt did it.

    A line cut short by a kill is left out. Reads the files twice and holds one row at a time.
    """
    last: dict[tuple[str, int], int] = {}
    for row in _rows(folder):
        key = row["split"], row["step"]
        last[key] = max(row["attempt"], last.get(key, 0))
    for row in _rows(folder):
        if row["attempt"] == last[row["split"], row["step"]]:
            yield Rollout(**row)


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for path in [*sorted(folder.glob("rollouts.*.jsonl.gz")), folder / ROLLOUTS]:
        if path.exists():
            with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
                for line in lines:
                    with suppress(orjson.JSONDecodeError):  # cut short by a kill
                        yield orjson.loads(line)
