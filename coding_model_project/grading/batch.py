"""Judging of many completions of many problems, with ungradable ones as errors in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coding_model_project.concurrency import each
from coding_model_project.errors import UngradableError
from coding_model_project.grading.base import Grader, Outcome
from coding_model_project.types import Problem

Progress = Callable[[Outcome], None]
"""A callback, called once per completion when its outcome is known."""


async def judge_completions(
    problems: Sequence[Problem],
    completions: Sequence[Sequence[str]],
    grader: Grader,
    progress: Progress | None = None,
    max_concurrency: int = 64,
) -> list[list[Outcome]]:
    """Return outcomes in the order of `completions`, which holds one group per problem.

    The outcome of an ungradable completion is an error, never a score; it does not stop the others. Any
    other exception is a bug: it cancels the rest and propagates.

    Args:
        max_concurrency: the maximum number of completions in the grader at once.

    Raises:
        ValueError: the number of groups differs from the number of problems.
    """
    if len(problems) != len(completions):
        raise ValueError(f"{len(completions)} groups of completions, {len(problems)} problems")

    async def judge(work: tuple[Problem, str]) -> Outcome:
        try:
            outcome: Outcome = await grader.grade(*work)
        except UngradableError as error:
            outcome = error
        if progress is not None:
            progress(outcome)
        return outcome

    groups = zip(problems, completions, strict=True)
    work = [(problem, completion) for problem, texts in groups for completion in texts]
    outcomes = iter(await each(work, judge, at_once=max_concurrency))
    return [[next(outcomes) for _ in texts] for texts in completions]
