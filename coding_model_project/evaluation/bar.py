"""The progress of an evaluation in a terminal: what is generated and judged, how fast, how long yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coding_model_project.evaluation.runner import Progress, Told


@contextmanager
def evaluation_bar(total: int, generated: int, judged: int) -> Iterator[Progress]:
    """Two bars on standard error; where that is no terminal, their last state only.

    Args:
        total: samples to do.
        generated, judged: how many of them earlier attempts did.
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
        TextColumn("{task.description:9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        generating = bars.add_task("generated", total=total, completed=generated, rate="")
        judging = bars.add_task("judged", total=total, completed=judged, rate="")
        started = bars.get_time()
        tokens = n_judged = n_passed = 0

        def told(step: Told) -> None:
            nonlocal tokens, n_judged, n_passed
            seconds = max(bars.get_time() - started, 1e-3)
            if step.generated is not None:
                tokens += step.generated.tokens
                bars.update(generating, advance=1, rate=f"{tokens / seconds:,.0f} tok/s")
            if step.judged is not None:
                n_judged += 1
                n_passed += bool(step.judged.passed)
                rate = f"{n_judged / seconds:.1f}/s, {n_passed / n_judged:.0%} pass"
                bars.update(judging, advance=1, rate=rate)

        yield told
