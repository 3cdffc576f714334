"""Progress bars on standard error, which leaves standard output to results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress


class Advance(Protocol):
    """Moves a progress bar on by one."""

    def __call__(self, *_: object) -> None: ...


def bars(description: str, *notes: str) -> Progress:
    """Make bars with counts and times; where standard error is no terminal, their last state only.

    Args:
        description: of each bar, and `notes` beside it: rich's markup, with a task's fields.
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
        *(TextColumn(description), BarColumn(), MofNCompleteColumn(), *map(TextColumn, notes)),
        *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
    )
    return Progress(*columns, console=Console(stderr=True))


@contextmanager
def progress_bar(what: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Show one of those `bars`.

    Args:
        done: how much of `total` was there before.
    """
    with bars(what) as progress:
        task = progress.add_task(what, total=total, completed=done)

        def advance(*_: object) -> None:
            progress.advance(task)

        yield advance
