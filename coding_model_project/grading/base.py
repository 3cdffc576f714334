"""The protocols of graders, which turn a problem and a completion into a verdict; judging of many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Protocol

from coding_model_project.concurrency import each
from coding_model_project.errors import UngradableError
from coding_model_project.types import Problem, Verdict

GRADER_VERSION = "14"
"""The version of the grading rules. Increase it with any change that can change a verdict; see "Scores
change" in CHANGELOG.md."""

AUTO, ROOMS = "auto", "rooms"
"""Environments of Harbor tasks: the default, and that of tasks which need nothing but a system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """The environment of Harbor tasks (`harbor.environment.factory.environments_of`)."""

    name: str = AUTO
    containers: int | None = None
    """For containers: maximum number of containers in use per node, by all processes; None means
    no limit."""
    agent: str | None = None
    """For rooms: a folder of the host, mounted read-only at /opt/agent."""
    pass_env: tuple[str, ...] = ()
    """Names of this machine's variables that tasks may have, by `${NAME}` in their task.toml."""


DEFAULT_ENVIRONMENT = TaskEnvironment()


def harbor_identity(environment: str) -> str:
    """Return the identity of `harbor.grader.HarborGrader` without importing it."""
    return f"{GRADER_VERSION}/harbor/{environment}"


@cache
def math_judge() -> str:
    """Return math-verify's name and version without importing the maths grader."""
    try:
        return f"math-verify {metadata.version('math-verify')}"
    except metadata.PackageNotFoundError:
        return "math-verify, not installed"


Outcome = Verdict | UngradableError
"""A completion's verdict, or the error that prevented one."""


@contextmanager
def timing_failures() -> Iterator[None]:
    """Add the body's wall seconds to the `judge_s` of an error that ends it."""
    started = time.monotonic()
    try:
        yield
    except UngradableError as error:
        error.judge_s += time.monotonic() - started
        raise


class Grader(Protocol):
    """A judge of completions; concurrent calls are safe."""

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion. Never raises because of the program.

        Raises:
            UngradableError: (SandboxError, CheckerError, DataError) no truthful verdict is possible.
        """
        ...


class AnswerGrader(Protocol):
    """A judge of answers of one kind (`kinds`), such as extracted programs."""

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge an answer without extraction; None stands for a completion without one.

        Raises:
            UngradableError: see `Grader.grade`.
        """
        ...


TaskGraders = Callable[..., AnswerGrader]
"""Makes the grader of Harbor tasks, which belongs to a higher room: `harbor.task_grader`."""


class CodeGrader(AnswerGrader, Protocol):
    """A judge whose verdicts `cache.CachedGrader` caches."""

    @property
    def identity(self) -> str:
        """The grader's part of a cache key: all inputs of a verdict except code and problem."""
        ...

    def answered_from_memory(self) -> None:
        """Record a cache hit, that is, a sample judged without running anything."""
        ...


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
