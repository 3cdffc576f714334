"""Trials in Harbor's format on disk, so that `harbor view` reads ours and we read Harbor's.

    JOB/TASK__7chars/
        config.json   the requested configuration  lock.json     the resolved one, with the task's digest
        result.json   a `TrialResult`              trial.log
        agent/        logs of the agent            verifier/     test-stdout.txt, reward.txt or .json
        artifacts/    collected files              steps/NAME/   these three folders for each step

The dataclasses keep Harbor 0.25's field names, for the fields that are read here.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from coding_model_project.errors import DataError
from coding_model_project.harbor.failures import exception_type, is_outage, is_unusable
from coding_model_project.harbor.format.reward_rules import (
    Rewards,
    main_reward,
    reward_valid,
)
from coding_model_project.redaction import redacted

RESULT_FILE, CONFIG_FILE, LOCK_FILE = "result.json", "config.json", "lock.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionInfo:
    """An exception that ended a trial or a step."""

    exception_type: str
    exception_message: str
    exception_traceback: str = ""
    occurred_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    def of(cls, error: BaseException) -> ExceptionInfo:
        """Describe an exception, by Harbor's name for it."""
        return cls(
            exception_type=exception_type(error),
            exception_message=redacted(str(error)),
            exception_traceback=redacted("".join(traceback.format_exception(error))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    name: str
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    name: str
    version: str
    model_info: ModelInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """An agent's usage. Input tokens include cached ones."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierResult:
    rewards: Rewards | None = None
    integrity: str | None = None
    """Integrity of the rewards (`harbor.integrity`); this project's own field, which Harbor ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """The fields that trials and steps share."""

    agent_result: AgentResult | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult(_Ended):
    step_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult(_Ended):
    """One attempt at one task."""

    task_name: str
    trial_name: str
    task_id: Mapping[str, Any]
    """{"path": …} for a task on this machine."""
    task_checksum: str
    config: Mapping[str, Any]
    """Contents of config.json."""
    agent_info: AgentInfo
    source: str | None = None
    """The task's data set."""
    step_results: tuple[StepResult, ...] | None = None

    @property
    def parts(self) -> tuple[_Ended, ...]:
        """The trial itself, then its steps."""
        return (self, *(self.step_results or ()))

    @property
    def task_key(self) -> str:
        """A key for the task, unique in a job even if two data sets have tasks of the same name."""
        return f"{self.source} {self.task_name} {sorted(self.task_id.items())}"

    @property
    def rewards(self) -> Rewards | None:
        return self.verifier_result.rewards if self.verifier_result else None

    @property
    def errors(self) -> tuple[ExceptionInfo, ...]:
        """The recorded exceptions: the trial's own, then those of its steps."""
        return tuple(one.exception_info for one in self.parts if one.exception_info is not None)

    @property
    def exceptions(self) -> tuple[str, ...]:
        """The types of `errors`."""
        return tuple(one.exception_type for one in self.errors)

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

    @property
    def usage(self) -> tuple[AgentResult, ...]:
        """The trial's own usage, else that of its steps."""
        used = tuple(one.agent_result for one in self.parts if one.agent_result is not None)
        return used[:1] if self.agent_result is not None else used


def read_trials(job: Path) -> tuple[TrialResult, ...]:
    """Read the finished trials of a job, ours or Harbor's, sorted by name.

    Raises:
        DataError: a result cannot be read; the message names the file.
    """
    return tuple(_read(path) for path in sorted(job.glob(f"*/{RESULT_FILE}")))


def _read(path: Path) -> TrialResult:
    try:
        return _adapter().validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: not a Harbor trial's result: {where}: {first['msg']}") from error


def plain(trial: TrialResult) -> dict[str, Any]:
    """Return the fields of result.json that are read here."""
    return _adapter().dump_python(trial, mode="json")


@cache
def _adapter() -> TypeAdapter[TrialResult]:
    return TypeAdapter(TrialResult)
