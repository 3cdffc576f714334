"""The outcome of a trial and its steps, by Harbor's names for rewards and errors; and the same on disk.

`harbor view` reads our trials:

    JOB/TASK__7chars/
        config.json   the configuration            result.json   a `TrialResult`
        trial.log     warnings and notes           exception.txt a traceback, if there is one
        agent/        logs of the agent            verifier/     test-stdout.txt, reward.txt or .json
        artifacts/    collected files              steps/NAME/   these three folders for each step
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from coding_model_project.errors import DataError
from coding_model_project.harbor.agents import ORACLE_EXIT, ORACLE_OUTPUT
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.failures import (
    FailureCause,
    VerifierError,
    counted_cause,
    exception_type,
    failure_cause,
    is_outage,
    is_unusable,
)
from coding_model_project.harbor.format.reward_rules import Rewards, main_reward, reward_valid
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.harbor_config import Integrity

_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """An artifact, and where it went."""

    path: str
    """Its path below the root, which it has for a separate verifier too."""
    destination: str
    """Its path in the trial's artifacts/."""
    found: Tree


@dataclass(slots=True, kw_only=True)
class StepOutcome:
    """The outcome of one step, which the trial fills in while it runs."""

    name: str | None
    rewards: Rewards | None = None
    error: Exception | None = None
    verifier_output: str = ""
    """Output of the tests, without its middle if it is long; also of a verifier without rewards."""
    verifier_files: Tree = field(default_factory=Tree)
    """Files in /logs/verifier with the rewards; only the rewards if all are too large."""
    hindered: str | None = None
    """A sign that the verifier, which gave no reward above 0, could not work (`hindrance`)."""
    collected: tuple[Collected, ...] = ()
    agent_files: Tree = field(default_factory=Tree)
    """Files in /logs/agent after the oracle's work."""
    agent_s: float = 0.0
    verifier_s: float = 0.0

    @property
    def said(self) -> str:
        """The end of the verifier's output in one line, after how the solution failed, if it did."""
        shown = " ".join(self.verifier_output.split())[-_SHOWN_CHARS:]
        if (code := self.agent_files.file(ORACLE_EXIT)) is None:
            return shown
        printed = (self.agent_files.file(ORACLE_OUTPUT) or b"").decode(errors="replace").split("\n")
        last = next((" ".join(one.split()) for one in reversed(printed) if one.strip()), "")
        failed = f"the solution exited with {code.decode(errors='replace')}: {last[-_SHOWN_CHARS:]}"
        return f"{failed}; the verifier: {shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """The outcome of one attempt at a task."""

    task: Task
    rewards: Rewards | None
    error: Exception | None
    """The error that ended the trial. In a task with steps, a step's error is in the step only."""
    steps: tuple[StepOutcome, ...]
    notes: tuple[str, ...] = ()
    """Parts of the environment's definition that were ignored."""
    wall_s: float = 0.0

    @property
    def integrity(self) -> Integrity:
        """See `Integrity.of`."""
        return Integrity.of(*self.task.steps)

    @property
    def errors(self) -> tuple[Exception, ...]:
        """The error that ended the trial, then those of its steps."""
        errors = (self.error, *(step.error for step in self.steps))
        return tuple(error for error in errors if error is not None)

    @property
    def failed(self) -> bool:
        """True if the environment itself failed, so that the result says nothing about the task."""
        return any(isinstance(error, EnvironmentFailed) for error in self.errors)

    @property
    def hindered(self) -> str | None:
        """The first step's sign that its verifier could not work."""
        return next((step.hindered for step in self.steps if step.hindered), None)

    @property
    def exception(self) -> str | None:
        """Harbor's name for the error that ended the trial, or else the first step that failed."""
        return self.exceptions[0] if self.exceptions else None

    @property
    def exceptions(self) -> list[str]:
        """Harbor's names for the errors that decide whether the rewards are valid."""
        errors = [self.error] if self.error is not None else []
        if self.task.has_steps:
            errors += [step.error for step in self.steps if step.error is not None]
        return [exception_type(error) for error in errors]

    @property
    def failure_cause(self) -> FailureCause | None:
        """The cause of the error that ended the trial, or else the first step that failed."""
        return failure_cause(self.exceptions[0]) if self.exceptions else None

    @property
    def reward_valid(self) -> bool:
        """True if the rewards measure the agent, not an outage."""
        return reward_valid(self.rewards, self.exceptions)

    @property
    def reward(self) -> float | None:
        """The main reward; None if it is missing or invalid."""
        return main_reward(self.rewards) if self.reward_valid else None

    @property
    def cause(self) -> str:
        """The reason for a missing or invalid main reward."""
        return counted_cause(self.exceptions, self.rewards)

    @property
    def reason(self) -> str | None:
        """The reason for a main reward below 1: an error's message, how the solution failed, and the end
        of the verifier's output.

        It is one line, of the first step with such a reward. None if there is neither.
        """
        if (self.reward or 0.0) >= 1:
            return None
        short = (one for one in self.steps if (main_reward(one.rewards) or 0.0) < 1)
        outputs = (step.said for step in short)
        said = next(filter(None, outputs), None)
        error = next(iter(self.errors), None)
        if error is None and self.rewards and self.reward is None:
            return f"none of the rewards {', '.join(self.rewards)} is named `reward`"
        if error is None:
            return said
        printed = f"; it printed: {said}" if said and isinstance(error, VerifierError) else ""
        return " ".join(f"{error}{printed}".split())

    def line(self) -> dict[str, Any]:
        """Return the object that `harbor grade` prints."""
        return {
            "task": self.task.label,
            "rewards": None if self.rewards is None else dict(self.rewards),
            "reward_valid": self.reward_valid,
            "exception": self.exception,
            "failure_cause": self.failure_cause,
            "reason": self.reason,
            "integrity": None if self.rewards is None else self.integrity,
        }


RESULT_FILE, CONFIG_FILE = "result.json", "config.json"
OWN_KEY = "coding_model_project"
"""The key of result.json with a `TrialResult`, beside Harbor's fields; Harbor ignores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What is read of a finished trial."""

    trial_name: str
    """The name of its folder."""
    task_name: str
    path: str
    """The task's folder."""
    source: str
    """The task's data set."""
    digest: str
    """The task's files (`Task.digest`)."""
    attempt: int | None = None
    agent: str
    model: str | None = None
    rewards: Rewards | None = None
    integrity: Integrity
    exception: str | None = None
    """The type of the exception that ended the trial."""
    exceptions: tuple[str, ...] = ()
    """All types of exceptions that decide whether the rewards are valid: the trial's own, its steps'."""
    error: str = ""
    """The first of these exceptions, with its message."""
    ending: str | None = None
    """How the agent's work ended in the last step."""
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    agent_s: float = 0.0
    judge_s: float = 0.0

    @property
    def task_key(self) -> tuple[str, str, str]:
        """A key for the task, unique in a job even if two data sets have tasks of the same name."""
        return self.source, self.task_name, self.path

    @property
    def is_outage(self) -> bool:
        """True if an outage ended it; resuming its job runs it again."""
        return any(map(is_outage, self.exceptions[:1]))

    @property
    def is_unusable(self) -> bool:
        """True if no agent can be judged on the task here: it cannot be built, or its verifier run."""
        return any(map(is_unusable, self.exceptions[:1]))

    @property
    def reward_valid(self) -> bool:
        """True if the rewards measure the agent, not an outage."""
        return reward_valid(self.rewards, self.exceptions)

    @property
    def reward(self) -> float | None:
        """The main reward; None if it is missing or invalid."""
        return main_reward(self.rewards) if self.reward_valid else None


def read_trials(job: Path) -> tuple[TrialResult, ...]:
    """Read the finished trials of a job of this project's, sorted by name.

    Raises:
        DataError: a result cannot be read; the message names the file.
    """
    trials: list[TrialResult] = []
    for path in sorted(job.glob(f"*/{RESULT_FILE}")):
        try:
            own = orjson.loads(path.read_bytes())[OWN_KEY]
            trials.append(_adapter().validate_python(own))
        except (ValueError, LookupError, TypeError) as error:
            why = " ".join(str(error).split())[:_SHOWN_CHARS]
            raise DataError(f"{path}: not a trial's result of this version: {why}") from error
    return tuple(trials)


@cache
def _adapter() -> TypeAdapter[TrialResult]:
    return TypeAdapter(TrialResult)
