"""Concurrent grading of many tasks; an invalid task is reported and does not stop the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from coding_model_project.concurrency import in_order
from coding_model_project.harbor.agents import Agent
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.integrity import Integrity
from coding_model_project.harbor.outcome import TrialOutcome
from coding_model_project.harbor.trial import Trials


@dataclass(slots=True, kw_only=True)
class Totals:
    """Counts of graded tasks by main reward, or by the reason that it is invalid."""

    tasks: int = 0
    full: int = 0
    """Number of tasks that earned a reward of 1 or more."""
    partial: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    short: list[str] = field(default_factory=list)
    """Names of the tasks that earned a valid reward below 1."""
    without: list[str] = field(default_factory=list)
    """Names of the tasks without a valid reward, such as refused ones."""
    in_process: list[str] = field(default_factory=list)
    """Names of the tasks whose reward the agent's code may have forged."""
    failed: bool = False
    """True if an environment failed."""

    def add(self, graded: TrialOutcome | Refused) -> None:
        self.tasks += 1
        if isinstance(graded, Refused):
            self.invalid["refused"] += 1
            self.without.append(graded.label)
            return
        name, reward = graded.task.label, graded.reward
        self.failed = self.failed or graded.failed
        if graded.rewards is not None and graded.integrity is Integrity.in_process:
            self.in_process.append(name)
        if reward is None:
            self.invalid[graded.cause] += 1
            self.without.append(name)
        elif reward >= 1:
            self.full += 1
        else:
            self.partial += reward > 0
            self.short.append(name)

    def __str__(self) -> str:
        n_invalid = self.invalid.total()
        nothing = self.tasks - self.full - self.partial - n_invalid
        causes = ", ".join(f"{cause} {n}" for cause, n in self.invalid.most_common())
        return (
            f"{self.tasks} tasks: reward 1: {self.full}, partial: {self.partial}, 0: {nothing}, "
            f"invalid: {n_invalid}{f' ({causes})' if causes else ''}"
        )


def grade(
    work: Iterable[tuple[Task | Refused, Agent]], trials: Trials, *, concurrency: int
) -> AsyncIterator[TrialOutcome | Refused]:
    """Run agents on tasks concurrently, and yield the results in the order of the tasks."""

    async def one(given: tuple[Task | Refused, Agent]) -> TrialOutcome | Refused:
        task, agent = given
        return task if isinstance(task, Refused) else await trials.run(task, agent)

    return in_order(work, one, at_once=concurrency)
