"""Many tasks graded at once, a bad one reported and the rest judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.harbor.agents import Agent
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.errors import FailureCause
from coding_model_project.harbor.rewards import Rewards
from coding_model_project.harbor.task import Task
from coding_model_project.harbor.tasks import Refused
from coding_model_project.harbor.trial import TrialOutcome, Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """One task's line."""

    task: str
    """The folder's name."""
    rewards: Rewards | None = None
    reward_valid: bool = False
    exception: str | None = None
    """Harbor's name for what ended the trial; of a refused task, why."""
    failure_cause: FailureCause | None = None
    outcome: TrialOutcome | None = None

    @property
    def failed(self) -> bool:
        """Whether the environment itself failed: nothing is known about the task then."""
        errors = [step.error for step in self.outcome.steps] if self.outcome else []
        return any(
            isinstance(error, EnvironmentFailed)
            for error in (self.outcome and self.outcome.error, *errors)
        )

    def line(self) -> dict[str, Any]:
        """What `harbor grade` prints."""
        return {
            "task": self.task,
            "rewards": None if self.rewards is None else dict(self.rewards),
            "reward_valid": self.reward_valid,
            "exception": self.exception,
            "failure_cause": self.failure_cause,
        }


async def grade(
    tasks: Iterable[Task | Refused],
    trials: Trials,
    agent: Callable[[Task], Agent],
    *,
    concurrency: int,
) -> AsyncIterator[Graded]:
    """Grade tasks, some at once; in their order."""
    running: asyncio.Queue[asyncio.Task[Graded] | None] = asyncio.Queue()
    places = asyncio.Semaphore(concurrency)

    async def one(task: Task) -> Graded:
        try:
            return _graded(await trials.run(task, agent(task)))
        finally:
            places.release()

    async def start() -> None:
        for task in tasks:
            if isinstance(task, Refused):
                running.put_nowait(asyncio.ensure_future(_refused(task)))
                continue
            await places.acquire()
            running.put_nowait(asyncio.ensure_future(one(task)))
        running.put_nowait(None)

    starting = asyncio.ensure_future(start())
    try:
        while (graded := await running.get()) is not None:
            yield await graded
        await starting
    finally:
        starting.cancel()
        left = [task for task in _emptied(running) if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(starting, *left, return_exceptions=True)


def _graded(outcome: TrialOutcome) -> Graded:
    return Graded(
        task=outcome.task.path.name,
        rewards=outcome.rewards,
        reward_valid=outcome.reward_valid,
        exception=outcome.exception,
        failure_cause=outcome.failure_cause,
        outcome=outcome,
    )


async def _refused(refused: Refused) -> Graded:
    return Graded(task=Path(refused.path).name, exception=f"InvalidTask: {refused.reason}")


def _emptied(queue: asyncio.Queue[Any]) -> list[Any]:
    found: list[Any] = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found
