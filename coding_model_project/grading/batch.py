"""Judges many completions of many problems, in order, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coding_model_project.errors import UngradableError
from coding_model_project.grading.base import Grader, Outcome
from coding_model_project.types import Problem

Progress = Callable[[Outcome], None]
"""Called once per completion, as soon as its outcome is known."""


async def judge_completions(
    problems: Sequence[Problem],
    completions: Sequence[Sequence[str]],
    grader: Grader,
    progress: Progress | None = None,
    max_concurrency: int = 64,
) -> list[list[Outcome]]:
    """Outcomes in the order of `completions`, which holds one group per problem.

    An ungradable completion takes its place as an error and never a score; it does not stop the
    others. Any other exception is a bug: it cancels the rest and propagates.

    Args:
        max_concurrency: completions handed to the grader at once.

    Raises:
        ValueError: not one group of completions per problem.
    """
    if len(problems) != len(completions):
        raise ValueError(f"{len(completions)} groups of completions, {len(problems)} problems")
    slots = asyncio.Semaphore(max_concurrency)

    async def judge(problem: Problem, completion: str) -> Outcome:
        async with slots:
            try:
                outcome: Outcome = await grader.grade(problem, completion)
            except UngradableError as error:
                outcome = error
        if progress is not None:
            progress(outcome)
        return outcome

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                [group.create_task(judge(problem, completion)) for completion in texts]
                for problem, texts in zip(problems, completions, strict=True)
            ]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [[task.result() for task in row] for row in tasks]
