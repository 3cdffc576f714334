"""Progress bars on standard error, which leaves standard output to results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Moves a progress bar on by one."""

    def __call__(self, *_: object) -> None: ...


@contextmanager
def progress_bar(what: str, total: int, done: int = 0) -> Iterator[Advance]:
    """A bar with counts and times; where standard error is no terminal, its last state only.

    Args:
        done: how much of `total` was there before.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        *(TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        *(TextColumn("left"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total, completed=done)

        def advance(*_: object) -> None:
            progress.advance(task)

        yield advance
