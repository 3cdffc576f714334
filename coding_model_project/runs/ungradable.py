"""ungradable.jsonl: every sample of a run that no verdict could be given for, and why.

These samples are in no batch: rollouts.jsonl holds what was trained on, this file what was left out.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

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
    """Seconds since the epoch."""


def note(folder: Path, row: Ungradable) -> None:
    """Append a row, whole even when several workers do so at once.

    Raises:
        OSError: it could not be written.
    """
    line = orjson.dumps(row) + b"\n"
    file = os.open(folder / _NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def reason_of(error: Exception) -> str:
    """An error's message in one line of readable length."""
    return " ".join(str(error).split())[:_REASON_CHARACTERS]


def read_ungradable(folder: Path) -> Iterator[Ungradable]:
    """All rows, in the order they were written; a line cut short by a kill is left out."""
    path = folder / _NAME
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            with suppress(orjson.JSONDecodeError):
                yield Ungradable(**orjson.loads(line))


def lost_problems(folder: Path, step: int) -> list[str]:
    """Return the problem of each sample of a step that could not be judged."""
    rows = (row for row in read_ungradable(folder) if row.step == step)
    return list({row.sample: row.problem for row in rows}.values())


def count(folder: Path, step: int, error: str) -> int:
    """Count the samples of a step that an error of this name left out."""
    return len(
        {row.sample for row in read_ungradable(folder) if (row.step, row.error) == (step, error)}
    )


def last_reason(folder: Path) -> str:
    """The reason why the last of them could not be judged; empty if there is none."""
    last = deque(read_ungradable(folder), maxlen=1)
    return f"{last[0].error}: {last[0].reason}" if last else ""
