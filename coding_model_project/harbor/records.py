"""Trials in Harbor's format on disk, so that `harbor view` reads ours and we read Harbor's.

    JOB/TASK__7chars/
        config.json   the requested configuration  lock.json     the resolved one, with the task's digest
        result.json   a `TrialResult`              trial.log
        agent/        logs of the agent            verifier/     test-stdout.txt, reward.txt or .json
        artifacts/    collected files              steps/NAME/   these three folders for each step

The dataclasses keep Harbor 0.25's field names, for the fields that are read here.
"""

from __future__ import annotations

import json
import secrets
import string
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import zip_longest
from os.path import normpath
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pydantic import TypeAdapter, ValidationError

from coding_model_project.atomic import write_json
from coding_model_project.errors import DataError
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.failures import exception_type, is_outage, is_unusable
from coding_model_project.harbor.format.reward_rules import (
    JSON_FILE,
    Rewards,
    main_reward,
    reward_valid,
)
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.task_config import VerifierMode
from coding_model_project.harbor.integrity import Integrity
from coding_model_project.harbor.outcome import CollectedStatus, StepOutcome, TrialOutcome
from coding_model_project.redaction import redacted

RESULT_FILE, CONFIG_FILE, LOCK_FILE = "result.json", "config.json", "lock.json"
AGENT_VERSION = "1"
_OUTPUT_FILE, _MANIFEST_FILE, _TRAJECTORY_FILE = (
    "test-stdout.txt",
    "manifest.json",
    "trajectory.json",
)
_ALPHABET = "".join(sorted(set(string.ascii_letters + string.digits) - set("01IOl")))


# ── what is read ──────────────────────────────────────────────────────────────────────────────────


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


@cache
def _adapter() -> TypeAdapter[TrialResult]:
    return TypeAdapter(TrialResult)


# ── what is written ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """An agent's work in one step."""

    used: AgentResult
    trajectory: Mapping[str, Any] | None
    """See `harbor.trajectory`; written beside the agent's logs. None if the model never replied."""


def write_trial(
    job: Path,
    outcome: TrialOutcome,
    *,
    agent: Mapping[str, Any],
    environment: Mapping[str, str],
    job_id: UUID,
    worked: Sequence[Worked] = (),
) -> TrialResult:
    """Write a trial that has just ended into a job's folder; result.json, the last, marks it as finished.

    Args:
        agent: Harbor's entry for the agent: "name", and perhaps "model_name" and "kwargs".
        environment: Harbor's entry for the environment: "type" or "import_path".
        worked: the agent's work in each step that it reached.
    """
    task, finished = outcome.task, datetime.now(UTC)
    folder = job / trial_name(task)
    folder.mkdir(parents=True)
    lines = (f"{finished.isoformat()} {note}\n" for note in (*task.warnings, *outcome.notes))
    (folder / "trial.log").write_text("".join(lines))
    ends, steps = finished, []
    for step, own, work in reversed([*zip_longest(outcome.steps, task.steps, worked)]):
        if step is None:
            continue
        _keep(_place(folder, step), step, work)
        steps.insert(0, _step(step, Integrity.of(own), ends, work))
        ends -= timedelta(seconds=step.agent_s + step.verifier_s)
    if not outcome.steps and not task.has_steps:
        for part in ("agent", "verifier", "artifacts"):
            (folder / part).mkdir()
    only = steps[0] if steps and not task.has_steps else _Ended()
    model = agent.get("model_name")
    mode = None if task.has_steps else (task.config.verifier.mode or VerifierMode.shared)
    digest = task.digest()
    config = {
        "task": {"path": str(task.path), "source": task.source},
        "trial_name": folder.name,
        "trials_dir": str(job),
        "agent": {key: value for key, value in agent.items() if value},
        "environment": dict(environment),
        "verifier": {},
        "job_id": str(job_id),
    }
    result = TrialResult(
        task_name=task.name,
        trial_name=folder.name,
        task_id={"path": str(task.path)},
        task_checksum=digest,
        config=config,
        source=task.source,
        agent_info=AgentInfo(
            name=agent["name"],
            version=AGENT_VERSION,
            model_info=ModelInfo(name=model) if model else None,
        ),
        agent_result=only.agent_result,
        verifier_result=_rewards(outcome.rewards, outcome.integrity),
        exception_info=None if outcome.error is None else ExceptionInfo.of(outcome.error),
        agent_execution=only.agent_execution,
        verifier=only.verifier,
        step_results=tuple(steps) if task.has_steps else None,
    )
    package = task.config.task
    about = {
        "name": task.name,
        "version": package.version if package else None,
        "type": "local",
        "digest": f"sha256:{digest}",
    }
    lock = {
        "schema_version": 2,
        "task": {**about, **config["task"]},
        "agent": config["agent"],
        "environment": config["environment"],
        "verifier": {"environment_mode": mode},
    }
    own = {
        "id": str(uuid4()),
        "trial_uri": folder.resolve().as_uri(),
        "verifier_environment_mode": mode,
        "started_at": (finished - timedelta(seconds=outcome.wall_s)).isoformat(),
        "finished_at": finished.isoformat(),
    }
    write_json(folder / CONFIG_FILE, config)
    write_json(folder / LOCK_FILE, lock)
    if result.exception_info is not None:
        (folder / "exception.txt").write_text(result.exception_info.exception_traceback)
    write_json(folder / RESULT_FILE, {**_adapter().dump_python(result, mode="json"), **own})
    return result


def trial_name(task: Task) -> str:
    """Return the first 32 characters of the task folder's name, and 7 random ones."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(7))
    return f"{task.label.rpartition('/')[2][:32].rstrip('_-')}__{suffix}"


def _place(folder: Path, step: StepOutcome) -> Path:
    return folder if step.name is None else folder / "steps" / step.name


def _keep(folder: Path, step: StepOutcome, work: Worked | None) -> None:
    """Write a step's files: the agent's, the verifier's output and results, and the artifacts."""
    agent, verifier, artifacts = (folder / name for name in ("agent", "verifier", "artifacts"))
    for part in (agent, verifier, artifacts):
        part.mkdir(parents=True)
    tree.keep(agent, step.agent_files)
    if work is not None and work.trajectory is not None:
        write_json(agent / _TRAJECTORY_FILE, work.trajectory)
    tree.keep(verifier, step.verifier_files.without((_OUTPUT_FILE,)))
    (verifier / _OUTPUT_FILE).write_text(step.verifier_output)
    if step.rewards is not None:
        (verifier / JSON_FILE).write_text(json.dumps(dict(step.rewards)))
    manifest = []
    for one in step.collected:
        if one.found is not None and one.status is not CollectedStatus.skipped:
            found = one.found.at(one.destination)
            found = found.kept(lambda entry: entry[0].split("/")[0] != _MANIFEST_FILE)
            tree.keep(artifacts, found)
        manifest.append(
            {
                "source": one.source,
                "destination": normpath(f"artifacts/{one.destination}"),
                "type": "file" if one.is_file else "directory",
                "status": one.status,
                "service": None,
                "exclude": [] if one.is_file else list(one.exclude),
            }
        )
    if manifest:
        write_json(artifacts / _MANIFEST_FILE, manifest)


def _step(
    step: StepOutcome, integrity: Integrity, end: datetime, work: Worked | None
) -> StepResult:
    verified = end - timedelta(seconds=step.verifier_s)
    began = verified - timedelta(seconds=step.agent_s)
    return StepResult(
        step_name=step.name or "",
        agent_result=None if work is None else work.used,
        verifier_result=_rewards(step.rewards, integrity),
        exception_info=None if step.error is None else ExceptionInfo.of(step.error),
        agent_execution=Timing(started_at=began, finished_at=verified),
        verifier=Timing(started_at=verified, finished_at=end),
    )


def _rewards(rewards: Rewards | None, integrity: Integrity) -> VerifierResult | None:
    return None if rewards is None else VerifierResult(rewards=rewards, integrity=str(integrity))
