"""Progress bars of an evaluation: generated and judged samples, rates, time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coding_model_project.evaluation.runner import Progress, Update
from coding_model_project.progress import bars


@contextmanager
def evaluation_bar(total: int, generated: int, judged: int) -> Iterator[Progress]:
    """Show two bars on standard error; if that is not a terminal, print only their final state.

    Args:
        total: number of samples.
        generated, judged: numbers of samples that earlier attempts generated and judged.
    """
    with bars("{task.description:9}", "{task.fields[rate]}") as shown:
        generating = shown.add_task("generated", total=total, completed=generated, rate="")
        judging = shown.add_task("judged", total=total, completed=judged, rate="")
        started = shown.get_time()
        tokens = n_judged = n_passed = 0

        def update(step: Update) -> None:
            nonlocal tokens, n_judged, n_passed
            seconds = max(shown.get_time() - started, 1e-3)
            if step.generated is not None:
                tokens += step.generated.tokens
                shown.update(generating, advance=1, rate=f"{tokens / seconds:,.0f} tok/s")
            if step.judged is not None:
                n_judged += 1
                n_passed += bool(step.judged.passed)
                rate = f"{n_judged / seconds:.1f}/s, {n_passed / n_judged:.0%} pass"
                shown.update(judging, advance=1, rate=rate)

        yield update
