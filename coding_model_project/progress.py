"""Progress bars on standard error; standard output is for results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 60
"""Seconds between progress lines if standard error is a log."""


class Advance(Protocol):
    """A function that advances a progress bar by one."""

    def __call__(self, *_: object) -> None: ...


def bars(description: str, *notes: str) -> Progress:
    """Create progress bars with counts and times; without a terminal, only their last state is printed.

    Args:
        description: the label of each bar, in rich's markup with a task's fields.
        notes: more such texts beside the bar.
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
    """Show one progress bar; in a log, also print a line every minute.

    Args:
        done: the part of `total` that is already complete.
    """
    with bars(what) as progress:
        task = progress.add_task(what, total=total, completed=done)
        began = line_at = time.monotonic()
        now_done = done

        def advance(*_: object) -> None:
            nonlocal line_at, now_done
            progress.advance(task)
            now_done += 1
            now = time.monotonic()
            if progress.console.is_terminal or now - line_at < LINE_EVERY_S:
                return
            line_at = now
            left_s = (now - began) / (now_done - done) * (total - now_done)
            line = f"{what}: {now_done:,} of {total:,}, about {left_s / 60:.0f} min left"
            progress.console.print(line, highlight=False, soft_wrap=True)

        yield advance
