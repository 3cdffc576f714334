"""A recorder that writes trials in Harbor's own format (`trial_results`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from os.path import normpath
from pathlib import Path
from typing import Any
from uuid import UUID

from coding_model_project.atomic import write_json
from coding_model_project.grading.base import AUTO
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.environment.base import ENGINES
from coding_model_project.harbor.format.digest import task_digest
from coding_model_project.harbor.format.reward_rules import JSON_FILE, Rewards
from coding_model_project.harbor.format.task_config import VerifierMode
from coding_model_project.harbor.format.trial_results import (
    AgentInfo,
    AgentResult,
    ExceptionInfo,
    ModelInfo,
    StepResult,
    Timing,
    TrialFolder,
    TrialResult,
    VerifierResult,
    trial_config,
    write_trial,
)
from coding_model_project.harbor.integrity import Integrity
from coding_model_project.harbor.trajectory import TRAJECTORY_FILE
from coding_model_project.harbor.trial_outcome import CollectedStatus, StepOutcome, TrialOutcome

_ROOMS = {"import_path": "coding_model_project.harbor.rooms.rooms:Room"}
_AUTO = {"import_path": "coding_model_project.harbor.environment.factory:AutoEnvironments"}

AGENT_VERSION = "1"
_OUTPUT_FILE = "test-stdout.txt"
_MANIFEST_FILE = "manifest.json"


def harbors_name(environment: str) -> Mapping[str, str]:
    """Return Harbor's name for the environments of this name (`factory.environments_of`)."""
    if environment in ENGINES:
        return {"type": "docker"}
    if ":" in environment:
        return {"import_path": environment}
    return _AUTO if environment == AUTO else _ROOMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """An agent's work in one step."""

    used: AgentResult
    trajectory: Mapping[str, Any] | None
    """See `harbor.trajectory`; written beside the agent's logs. None if the model never replied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """A writer of one agent's trials into a job's folder."""

    job: Path
    job_id: UUID
    agent: str
    environment: Mapping[str, str] = field(default_factory=lambda: _ROOMS)
    """The result of `harbors_name`."""
    model: str | None = None

    def record(
        self,
        outcome: TrialOutcome,
        worked: Sequence[Worked] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> TrialResult:
        """Write a trial that has just ended.

        Args:
            worked: the agent's work in each step that it reached.
            settings: the agent's keyword arguments, by Harbor's names.
        """
        task, finished = outcome.task, datetime.now(UTC)
        folder = TrialFolder.make(self.job, task)
        for note in (*task.warnings, *outcome.notes):
            folder.log(note)
        for step in outcome.steps:
            _keep(folder, step)
        ends = _ends(outcome.steps, finished)
        used = [work.used for work in worked]
        steps = tuple(
            _step(step, Integrity.of(own), end, use)
            for (step, own, end), use in zip_longest(
                zip(outcome.steps, task.steps, ends, strict=False), used[: len(ends)]
            )
        )
        for number, work in enumerate(worked):
            name = outcome.steps[number].name if number < len(outcome.steps) else None
            folder.agent(name).mkdir(parents=True, exist_ok=True)
            if work.trajectory is not None:
                write_json(folder.agent(name) / TRAJECTORY_FILE, work.trajectory)
        only = steps[0] if steps and not task.has_steps else None
        agent = {"name": self.agent, "model_name": self.model, "kwargs": dict(settings or {})}
        config = trial_config(
            task,
            folder,
            agent={key: value for key, value in agent.items() if value},
            environment=self.environment,
            job_id=self.job_id,
            source=task.source,
        )
        mode = None if task.has_steps else (task.config.verifier.mode or VerifierMode.shared)
        result = TrialResult(
            task_name=task.name,
            trial_name=folder.path.name,
            trial_uri=folder.path.resolve().as_uri(),
            task_id={"path": str(task.path)},
            task_checksum=task_digest(task).partition(":")[2],
            config=config,
            source=config["task"]["source"],
            agent_info=AgentInfo(
                name=self.agent,
                version=AGENT_VERSION,
                model_info=ModelInfo(name=self.model) if self.model else None,
            ),
            agent_result=used[0] if used and not task.has_steps else None,
            verifier_result=_rewards(outcome.rewards, outcome.integrity),
            verifier_environment_mode=mode,
            exception_info=None if outcome.error is None else ExceptionInfo.of(outcome.error),
            started_at=finished - timedelta(seconds=outcome.wall_s),
            finished_at=finished,
            agent_execution=only.agent_execution if only else None,
            verifier=only.verifier if only else None,
            step_results=steps if task.has_steps else None,
        )
        write_trial(folder, task, result)
        return result


def _keep(folder: TrialFolder, step: StepOutcome) -> None:
    """Write a step's files: the verifier's output and results, and the artifacts."""
    for part in (folder.agent(step.name), folder.verifier(step.name), folder.artifacts(step.name)):
        part.mkdir(parents=True, exist_ok=True)
    files = step.verifier_files.without((_OUTPUT_FILE,))
    tree.keep(folder.verifier(step.name), files)
    (folder.verifier(step.name) / _OUTPUT_FILE).write_text(step.verifier_output)
    if step.rewards is not None:
        (folder.verifier(step.name) / JSON_FILE).write_text(json.dumps(dict(step.rewards)))
    tree.keep(folder.agent(step.name), step.agent_files)
    manifest = []
    for one in step.collected:
        if one.found is not None and one.status is not CollectedStatus.skipped:
            found = one.found.at(one.destination)
            found = found.kept(lambda entry: entry[0].split("/")[0] != _MANIFEST_FILE)
            tree.keep(folder.artifacts(step.name), found)
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
        write_json(folder.artifacts(step.name) / _MANIFEST_FILE, manifest)


def _step(
    step: StepOutcome, integrity: Integrity, end: datetime, used: AgentResult | None
) -> StepResult:
    verified = end - timedelta(seconds=step.verifier_s)
    return StepResult(
        step_name=step.name or "",
        agent_result=used,
        verifier_result=_rewards(step.rewards, integrity),
        exception_info=None if step.error is None else ExceptionInfo.of(step.error),
        agent_execution=Timing(
            started_at=verified - timedelta(seconds=step.agent_s), finished_at=verified
        ),
        verifier=Timing(started_at=verified, finished_at=end),
    )


def _ends(steps: tuple[StepOutcome, ...], finished: datetime) -> list[datetime]:
    """Return each step's end, counted back from the trial's end by the steps' durations."""
    ends: list[datetime] = []
    for step in reversed(steps):
        ends.insert(0, finished)
        finished -= timedelta(seconds=step.agent_s + step.verifier_s)
    return ends


def _rewards(rewards: Rewards | None, integrity: Integrity) -> VerifierResult | None:
    if rewards is None:
        return None
    return VerifierResult(rewards=dict(rewards), integrity=str(integrity))
