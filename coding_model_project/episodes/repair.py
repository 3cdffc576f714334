"""An episode of attempts and repairs, whoever generates: verl's rollout, or an evaluation's back end.

    answer → fails a public test → the model is told of it → answer → …

It ends with an answer that passes the public tests, that was cut off by its limit, that is the last one
the rounds allow, or after which the model has no room for another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from coding_model_project.grading.base import Grader
from coding_model_project.grading.observation import can_repair, observation
from coding_model_project.grading.prompts import Message, PromptStyle
from coding_model_project.types import Problem


class Answer(Protocol):
    """What a model answered."""

    @property
    def truncated(self) -> bool:
        """Ended by its limit and not by the model."""
        ...


A = TypeVar("A", bound=Answer)
A_co = TypeVar("A_co", bound=Answer, covariant=True)


class Model(Protocol[A_co]):
    """Whatever answers; it keeps the conversation."""

    async def answer(self, repairs: int) -> A_co | None:
        """Answer the last message; None if there is no room for an answer.

        Args:
            repairs: how many answers came before.
        """
        ...

    async def tell(self, message: Message) -> bool:
        """Add a message; false if no answer to it would fit."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of an answer on the public tests."""

    error: str | None = None
    """The error's type; None if the answer passes them all, or there are none."""
    message: Message | None = None
    """What the model is told; None if the episode ends here."""
    judge_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Generic[A]):
    """One answer of an episode, and what came of it."""

    answer: A
    public_error: str | None = None
    """What its public tests said; None if they passed or were not asked."""
    observation: str | None = None
    """What the model was told after it; None for the last attempt."""
    judge_s: float = 0.0
    """Of its public tests."""


async def attempts(
    model: Model[A], look: Callable[[A], Awaitable[Seen]], *, rounds: int
) -> list[Attempt[A]]:
    """Have a problem answered, and the answer repaired.

    Args:
        look: runs the public tests of an answer.
        rounds: most repairs.

    Returns:
        At least one attempt, unless the model had no room for its first answer.
    """
    made: list[Attempt[A]] = []
    while (answer := await model.answer(len(made))) is not None:
        made.append(Attempt(answer=answer))
        if len(made) > rounds or answer.truncated:
            return made
        seen = await look(answer)
        made[-1] = replace(made[-1], public_error=seen.error, judge_s=seen.judge_s)
        if seen.message is None or not await model.tell(seen.message):
            return made
        made[-1] = replace(made[-1], observation=seen.message["content"])
    if made:  # what no answer followed was not told
        made[-1] = replace(made[-1], observation=None)
    return made


async def look_at(
    problem: Problem, completion: str, public: Grader, *, style: PromptStyle, max_bytes: int
) -> Seen:
    """Judge an answer by its problem's public tests.

    Args:
        max_bytes: most of a failing test that the model is shown.

    Raises:
        UngradableError: no truthful verdict can be given; nothing is told to the model then.
    """
    if not can_repair(problem):
        return Seen()
    verdict = await public.grade(problem, completion)
    message = observation(problem, verdict, style=style, max_bytes=max_bytes)
    error = verdict.error and str(verdict.error)
    return Seen(error=error, message=message, judge_s=verdict.judge_s)
