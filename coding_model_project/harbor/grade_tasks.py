"""Concurrent grading of many tasks; an invalid task is reported and does not stop the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from coding_model_project.concurrency import in_order
from coding_model_project.harbor.agents import Agent
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.failures import FailureCause, VerifierError, counted_cause
from coding_model_project.harbor.format.reward_rules import Rewards, main_reward
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.integrity import Integrity
from coding_model_project.harbor.trial import Trials
from coding_model_project.harbor.trial_outcome import TrialOutcome

_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """The result of one task: its trial's outcome, or the reason why there was none."""

    task: str
    """The folder's name (`Task.label`)."""
    outcome: TrialOutcome | None = None
    refusal: str = ""
    """The reason why the folder is not a valid task."""

    @property
    def rewards(self) -> Rewards | None:
        return self.outcome.rewards if self.outcome else None

    @property
    def reward_valid(self) -> bool:
        return self.outcome is not None and self.outcome.reward_valid

    @property
    def reward(self) -> float | None:
        """The main reward; None if it is missing or invalid."""
        return main_reward(self.rewards) if self.reward_valid else None

    @property
    def exception(self) -> str | None:
        """Harbor's name for the error that ended the trial."""
        return self.outcome.exception if self.outcome else "InvalidTask"

    @property
    def integrity(self) -> Integrity | None:
        """None if the task was not verified."""
        return self.outcome.integrity if self.outcome and self.rewards is not None else None

    @property
    def failed(self) -> bool:
        """True if the environment itself failed, so that the result says nothing about the task."""
        errors = self.outcome.errors if self.outcome else ()
        return any(isinstance(error, EnvironmentFailed) for error in errors)

    @property
    def cause(self) -> str:
        """The reason for a missing or invalid main reward."""
        if self.outcome is None:
            return "refused"
        cause = counted_cause(self.outcome.exceptions)
        return cause or ("no_main_reward" if self.rewards else str(FailureCause.unclassified))

    @property
    def reason(self) -> str | None:
        """The reason for a main reward below 1: an error's message, and the end of the verifier's output.

        It is one line, of the first step with such a reward. None if there is neither.
        """
        if self.outcome is None:
            return _one_line(self.refusal)
        if (self.reward or 0.0) >= 1:
            return None
        short = (one for one in self.outcome.steps if (main_reward(one.rewards) or 0.0) < 1)
        outputs = (_one_line(step.verifier_output)[-_SHOWN_CHARS:] for step in short)
        said = next(filter(None, outputs), None)
        error = next(iter(self.outcome.errors), None)
        if error is None:
            return said
        printed = f"; it printed: {said}" if said and isinstance(error, VerifierError) else ""
        return _one_line(f"{error}{printed}")

    def line(self) -> dict[str, Any]:
        """Return the object that `harbor grade` prints."""
        return {
            "task": self.task,
            "rewards": None if self.rewards is None else dict(self.rewards),
            "reward_valid": self.reward_valid,
            "exception": self.exception,
            "failure_cause": self.outcome.failure_cause if self.outcome else None,
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
        (self.short if graded.outcome else self.refused).append(graded.task)

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
) -> AsyncIterator[Graded]:
    """Run agents on tasks concurrently, and yield the results in the order of the tasks."""

    async def one(given: tuple[Task | Refused, Agent]) -> Graded:
        task, agent = given
        if isinstance(task, Refused):
            return Graded(task=task.label, refusal=task.reason)
        return Graded(task=task.label, outcome=await trials.run(task, agent))

    return in_order(work, one, at_once=concurrency)


def _one_line(text: str) -> str:
    return " ".join(text.split())
