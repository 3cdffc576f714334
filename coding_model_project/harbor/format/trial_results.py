"""Trials in Harbor's format on disk, so that `harbor view` reads ours and we read Harbor's.

    JOB/TASK__7chars/
        config.json   the requested configuration  lock.json     the resolved one, with the task's digest
        result.json   a `TrialResult`              trial.log
        agent/        logs of the agent            verifier/     test-stdout.txt, reward.txt or .json
        artifacts/    collected files              steps/NAME/   these three folders for each step

The dataclasses keep Harbor 0.25's field names. Reading ignores Harbor's other fields.
"""

from __future__ import annotations

import secrets
import string
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pydantic import TypeAdapter, ValidationError

from coding_model_project.atomic import write_json
from coding_model_project.errors import DataError
from coding_model_project.harbor.failures import FailureCause, exception_type, failure_cause
from coding_model_project.harbor.format.digest import task_digest
from coding_model_project.harbor.format.reward_rules import reward_valid
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.task_config import VerifierMode
from coding_model_project.redaction import redacted

RESULT_FILE, CONFIG_FILE, LOCK_FILE, LOG_FILE = (
    "result.json", "config.json", "lock.json", "trial.log",
)  # fmt: skip
_ALPHABET = "".join(sorted(set(string.ascii_letters + string.digits) - set("01IOl")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionInfo:
    """An exception that ended a trial or a step."""

    exception_type: str
    exception_message: str
    exception_traceback: str
    occurred_at: datetime

    @classmethod
    def of(cls, error: BaseException) -> ExceptionInfo:
        """Describe an exception, by Harbor's name for it."""
        return cls(
            exception_type=exception_type(error),
            exception_message=redacted(str(error)),
            exception_traceback=redacted("".join(traceback.format_exception(error))),
            occurred_at=datetime.now(UTC),
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
    rewards: Mapping[str, float | int] | None = None
    integrity: str | None = None
    """Integrity of the rewards (`harbor.integrity`); this project's own field, which Harbor ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    step_name: str
    agent_result: AgentResult | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One attempt at one task."""

    task_name: str
    trial_name: str
    trial_uri: str
    task_id: Mapping[str, Any]
    """{"path": …} for a task on this machine."""
    task_checksum: str
    config: Mapping[str, Any]
    """Contents of config.json."""
    agent_info: AgentInfo
    id: UUID = field(default_factory=uuid4)
    source: str | None = None
    """The task's data set."""
    agent_result: AgentResult | None = None
    verifier_result: VerifierResult | None = None
    verifier_environment_mode: VerifierMode | None = None
    exception_info: ExceptionInfo | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: Timing | None = None
    agent_setup: Timing | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None
    step_results: tuple[StepResult, ...] | None = None

    @property
    def task_key(self) -> str:
        """A key for the task, unique in a job even if two data sets have tasks of the same name."""
        return f"{self.source} {self.task_name} {sorted(self.task_id.items())}"

    @property
    def rewards(self) -> Mapping[str, float | int] | None:
        return self.verifier_result.rewards if self.verifier_result else None

    @property
    def exceptions(self) -> tuple[str, ...]:
        """The recorded exception types: the trial's own, then those of its steps."""
        recorded = (self.exception_info, *(step.exception_info for step in self.step_results or ()))
        return tuple(one.exception_type for one in recorded if one is not None)

    @property
    def failure_cause(self) -> FailureCause | None:
        return failure_cause(self.exceptions[0]) if self.exceptions else None

    @property
    def reward_valid(self) -> bool:
        """True if the rewards measure the agent, not an outage."""
        return reward_valid(self.rewards, self.exceptions)

    @property
    def usage(self) -> tuple[AgentResult, ...]:
        """The trial's own usage, else that of its steps."""
        if self.agent_result is not None:
            return (self.agent_result,)
        return tuple(step.agent_result for step in self.step_results or () if step.agent_result)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFolder:
    """The folder of one trial's files."""

    path: Path

    @classmethod
    def make(cls, job: Path, task: Task) -> TrialFolder:
        """Make a job's folder for a new trial, with its parts, under a unique name."""
        folder = cls(path=job / trial_name(task))
        folder.path.mkdir(parents=True)
        if not task.has_steps:
            for part in (folder.agent(), folder.verifier(), folder.artifacts()):
                part.mkdir()
        return folder

    def agent(self, step: str | None = None) -> Path:
        return self._part("agent", step)

    def verifier(self, step: str | None = None) -> Path:
        return self._part("verifier", step)

    def artifacts(self, step: str | None = None) -> Path:
        return self._part("artifacts", step)

    def log(self, line: str) -> None:
        """Append a line to trial.log."""
        with (self.path / LOG_FILE).open("a") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {line}\n")

    def _part(self, name: str, step: str | None) -> Path:
        return self.path / name if step is None else self.path / "steps" / step / name


def trial_name(task: Task) -> str:
    """Return the first 32 characters of the task folder's name, and 7 random ones."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(7))
    name = task.label.rpartition("/")[2]
    return f"{name[:32].rstrip('_-')}__{suffix}"


def trial_config(
    task: Task,
    folder: TrialFolder,
    *,
    agent: Mapping[str, Any],
    environment: Mapping[str, Any],
    job_id: UUID | None = None,
    source: str | None = None,
) -> dict[str, Any]:
    """Return the contents of config.json, with Harbor's keys; omitted keys have its defaults.

    Args:
        agent: {"name": …} or {"import_path": "module:Class"}, "model_name", "kwargs", ….
        environment: {"type": …} or {"import_path": "module:Class"}, ….
    """
    return {
        "task": {"path": str(task.path), "source": source},
        "trial_name": folder.path.name,
        "trials_dir": str(folder.path.parent),
        "agent": dict(agent),
        "environment": dict(environment),
        "verifier": {},
        "job_id": None if job_id is None else str(job_id),
    }


def trial_lock(task: Task, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of lock.json: the configuration, with the task's digest besides its path."""
    package = task.config.task
    mode = None if task.has_steps else (task.config.verifier.mode or VerifierMode.shared)
    return {
        "schema_version": 2,
        "task": {
            "name": task.name,
            "version": package.version if package else None,
            "type": "local",
            "digest": task_digest(task),
            "source": config["task"]["source"],
            "path": str(task.path),
        },
        "agent": config["agent"],
        "environment": config["environment"],
        "verifier": {**config["verifier"], "environment_mode": mode},
    }


def write_trial(folder: TrialFolder, task: Task, result: TrialResult) -> None:
    """Write config.json, lock.json and, last, result.json, which marks the trial as finished."""
    write_json(folder.path / CONFIG_FILE, result.config)
    write_json(folder.path / LOCK_FILE, trial_lock(task, result.config))
    (folder.path / LOG_FILE).touch()
    if result.exception_info is not None:
        info = result.exception_info
        text = info.exception_traceback or info.exception_message
        (folder.path / "exception.txt").write_text(text)
    write_json(folder.path / RESULT_FILE, _adapter().dump_python(result, mode="json"))


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


@cache
def _adapter() -> TypeAdapter[TrialResult]:
    return TypeAdapter(TrialResult)
