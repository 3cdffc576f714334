"""Progress bars on standard error, which leaves standard output to results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 60
"""Where standard error is a log, a line of progress is written this often."""


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
    """Show one of those `bars`; in a log, also a line every minute.

    Args:
        done: how much of `total` was there before.
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
