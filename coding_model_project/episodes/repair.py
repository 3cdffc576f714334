"""An episode of attempts and repairs, for any generator: verl's rollout or an evaluation's back end.

    answer → fails a public test → the model gets an observation → answer → …

It ends with an answer that passes the public tests, that is truncated, that is the last allowed one, or
after which the model has no room for another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from coding_model_project.config_key import key
from coding_model_project.grading.base import Grader
from coding_model_project.grading.observation import can_repair, observation
from coding_model_project.grading.prompts import Message, PromptStyle
from coding_model_project.types import Problem


class RepairReward(StrEnum):
    """The attempt of an episode that is rewarded."""

    final = "final"
    best = "best"


@dataclass
class RepairConfig:
    """Settings of repair episodes. `recipes.repair` enables them; `recipes.grpo` has no rounds."""

    rounds: int = key(
        0,
        "Most repairs of a program that fails a public test: the model sees that test and answers again, "
        "within the same episode. 0 disables repair.",
        unit="rounds",
    )
    attempt_tokens: int | None = key(
        None,
        "Most tokens of one attempt's answer. null: an equal share of `data.max_response_length`, which "
        "holds the whole episode, observations included.",
        unit="tokens",
    )
    observation_bytes: int = key(
        600,
        "Most bytes of the test and its outcome that the model sees; longer ones are truncated.",
        unit="bytes",
    )
    reward: RepairReward = key(
        RepairReward.final,
        "`final` rewards the last attempt, `best` the one with the highest reward after `discount`. The "
        "reported acceptance is always the last attempt's.",
    )
    discount: float = key(
        1.0,
        "Factor on an attempt's reward for each repair before it, with `reward=best`.",
        unit="1",
    )


# ── an episode ────────────────────────────────────────────────────────────────────────────────────────


class Answer(Protocol):
    """A model's answer."""

    @property
    def truncated(self) -> bool:
        """Return whether a limit ended it and not the model."""
        ...


A = TypeVar("A", bound=Answer)
A_co = TypeVar("A_co", bound=Answer, covariant=True)


class Model(Protocol[A_co]):
    """A model that answers and keeps the conversation."""

    async def answer(self, repairs: int) -> A_co | None:
        """Answer the last message, or return None if there is no room for an answer.

        Args:
            repairs: the number of earlier answers.
        """
        ...

    async def tell(self, message: Message) -> bool:
        """Add a message, and return whether an answer to it fits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The result of an answer on the public tests."""

    error: str | None = None
    """The error's type; None if the answer passes them all, or there are none."""
    message: Message | None = None
    """The model's next message; None if the episode ends here."""
    judge_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Generic[A]):
    """One answer of an episode with its result."""

    answer: A
    public_error: str | None = None
    """The error on its public tests; None if they passed or did not run."""
    observation: str | None = None
    """The model's message after it; None for the last attempt."""
    judge_s: float = 0.0
    """Seconds to judge its public tests."""


async def attempts(
    model: Model[A], look: Callable[[A], Awaitable[Seen]], *, rounds: int
) -> list[Attempt[A]]:
    """Let the model answer a problem and repair its answer.

    Args:
        look: runs an answer's public tests.
        rounds: the most repairs.

    Returns:
        At least one attempt, unless the model has no room for its first answer.
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
    if made:  # an observation without a following answer does not count
        made[-1] = replace(made[-1], observation=None)
    return made


async def look_at(
    problem: Problem, completion: str, public: Grader, *, style: PromptStyle, max_bytes: int
) -> Seen:
    """Judge an answer by its problem's public tests.

    Args:
        max_bytes: most bytes of a failing test in the model's message.

    Raises:
        UngradableError: there is no truthful verdict; the model gets no message.
    """
    if not can_repair(problem):
        return Seen()
    verdict = await public.grade(problem, completion)
    message = observation(problem, verdict, style=style, max_bytes=max_bytes)
    error = verdict.error and str(verdict.error)
    return Seen(error=error, message=message, judge_s=verdict.judge_s)
