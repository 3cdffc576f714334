"""Concurrent grading of many tasks; an invalid task is reported and does not stop the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from coding_model_project.harbor.agents import Agent
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.failures import FailureCause, counted_cause
from coding_model_project.harbor.format.reward_rules import Rewards, main_reward
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.integrity import Integrity
from coding_model_project.harbor.trial import Trials
from coding_model_project.harbor.trial_outcome import TrialOutcome

_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """The result of one task."""

    task: str
    """The folder's name (`Task.label`)."""
    rewards: Rewards | None = None
    reward_valid: bool = False
    exception: str | None = None
    """Harbor's name for the error that ended the trial."""
    failure_cause: FailureCause | None = None
    integrity: Integrity | None = None
    """None if the task was not verified."""
    outcome: TrialOutcome | None = None
    refusal: str | None = None
    """The reason why the folder is not a valid task."""

    @property
    def failed(self) -> bool:
        """True if the environment itself failed, so that the result says nothing about the task."""
        errors = self.outcome.errors if self.outcome else ()
        return any(isinstance(error, EnvironmentFailed) for error in errors)

    @property
    def reward(self) -> float | None:
        """The main reward; None if it is missing or invalid."""
        return main_reward(self.rewards) if self.reward_valid else None

    @property
    def refused(self) -> bool:
        """True if the folder is not a valid task, and so was not graded."""
        return self.outcome is None and self.rewards is None

    @property
    def cause(self) -> str:
        """The reason for a missing or invalid main reward."""
        if self.outcome is None:
            return "refused"
        cause = counted_cause(self.outcome.exceptions)
        return cause or ("no_main_reward" if self.rewards else str(FailureCause.unclassified))

    @property
    def reason(self) -> str | None:
        """The reason for a main reward below 1: an error's message, or the end of the verifier's output.

        It is one line. None if there is neither.
        """
        if self.outcome is None:
            return _one_line(self.refusal or "") or None
        if (self.reward or 0.0) >= 1:
            return None
        outputs = (_one_line(step.verifier_output)[-_SHOWN_CHARS:] for step in self.outcome.steps)
        errors = (_one_line(str(error)) for error in self.outcome.errors)
        return next(filter(None, (*errors, *outputs)), None)

    def line(self) -> dict[str, Any]:
        """Return the object that `harbor grade` prints."""
        return {
            "task": self.task,
            "rewards": None if self.rewards is None else dict(self.rewards),
            "reward_valid": self.reward_valid,
            "exception": self.exception,
            "failure_cause": self.failure_cause,
            "reason": self.reason,
            "integrity": self.integrity,
        }


@dataclass(slots=True, kw_only=True)
class Totals:
    """Counts of graded tasks by main reward, or by the reason that it is invalid."""

    tasks: int = 0
    full: int = 0
    """Number of tasks that earned a reward of 1 or more."""
    partial: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    short: list[str] = field(default_factory=list)
    """Names of the graded tasks that did not earn a reward of 1."""
    refused: list[str] = field(default_factory=list)
    """Names of the tasks that were refused, and so not graded."""
    in_process: list[str] = field(default_factory=list)
    """Names of the tasks whose reward the agent's code may have forged."""
    failed: bool = False
    """True if an environment failed."""

    def add(self, graded: Graded) -> None:
        self.tasks += 1
        self.failed = self.failed or graded.failed
        if graded.integrity is Integrity.in_process:
            self.in_process.append(graded.task)
        reward = graded.reward
        if reward is None:
            self.invalid[graded.cause] += 1
        elif reward >= 1:
            self.full += 1
            return
        elif reward > 0:
            self.partial += 1
        (self.refused if graded.refused else self.short).append(graded.task)

    def __str__(self) -> str:
        n_invalid = self.invalid.total()
        nothing = self.tasks - self.full - self.partial - n_invalid
        causes = ", ".join(f"{cause} {n}" for cause, n in self.invalid.most_common())
        return (
            f"{self.tasks} tasks: reward 1: {self.full}, partial: {self.partial}, 0: {nothing}, "
            f"invalid: {n_invalid}{f' ({causes})' if causes else ''}"
        )


async def grade(
    tasks: Iterable[Task | Refused],
    trials: Trials,
    agent: Callable[[Task], Agent],
    *,
    concurrency: int,
) -> AsyncIterator[Graded]:
    """Grade tasks concurrently, and yield the results in the order of the tasks.

    Raises:
        Exception: reading a task failed; the results of earlier tasks come first.
    """
    running: asyncio.Queue[asyncio.Task[Graded] | None] = asyncio.Queue()
    places = asyncio.Semaphore(concurrency)

    async def one(task: Task) -> Graded:
        try:
            return _graded(await trials.run(task, agent(task)))
        finally:
            places.release()

    async def start() -> None:
        try:
            for task in tasks:
                if isinstance(task, Refused):
                    running.put_nowait(asyncio.ensure_future(_refused(task)))
                    continue
                await places.acquire()
                running.put_nowait(asyncio.ensure_future(one(task)))
        finally:
            running.put_nowait(None)  # even if reading a task failed: the reader must not block

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


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _graded(outcome: TrialOutcome) -> Graded:
    return Graded(
        task=outcome.task.label,
        rewards=outcome.rewards,
        reward_valid=outcome.reward_valid,
        exception=outcome.exception,
        failure_cause=outcome.failure_cause,
        integrity=outcome.integrity if outcome.rewards is not None else None,
        outcome=outcome,
    )


async def _refused(refused: Refused) -> Graded:
    return Graded(task=refused.label, exception="InvalidTask", refusal=refused.reason)


def _emptied(queue: asyncio.Queue[Any]) -> list[Any]:
    found: list[Any] = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found
