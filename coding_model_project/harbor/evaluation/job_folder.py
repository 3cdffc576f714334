"""A writer of a job's folder in Harbor's format: its trials (`outcome`), and the job's own files."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from coding_model_project.atomic import write_json
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.evaluation.scores import job_stats
from coding_model_project.harbor.format.reward_rules import JSON_FILE, Rewards
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.task_config import VerifierMode
from coding_model_project.harbor.harbor_config import Integrity
from coding_model_project.harbor.outcome import (
    CONFIG_FILE,
    RESULT_FILE,
    AgentInfo,
    AgentResult,
    ExceptionInfo,
    ModelInfo,
    StepOutcome,
    StepResult,
    Timing,
    TrialOutcome,
    TrialResult,
    VerifierResult,
    plain,
)

AGENT_VERSION = "1"
_OUTPUT_FILE = "test-stdout.txt"
_ALPHABET = "".join(sorted(set(string.ascii_letters + string.digits) - set("01IOl")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """An agent's work in one step."""

    used: AgentResult
    trajectory: Mapping[str, Any] | None
    """See `harbor.trajectory`; written beside the agent's logs. None if the model never replied."""


class Job:
    """A job's folder: trials as they end, and the job's own files, which `write` makes anew.

    Args:
        agent: Harbor's entry for the agent: "name", and perhaps "model_name" and "kwargs".
        environment: name of the environments (`factory.environments_of`).
    """

    def __init__(self, folder: Path, agent: Mapping[str, Any], environment: str) -> None:
        self.folder, self.agent = folder.resolve(), agent
        self.environment = {"import_path": environment}
        self.id, self.started = uuid4(), datetime.now(UTC)
        self.trials: list[TrialResult] = []
        """Finished trials, except those that an outage ended before this process began."""

    @classmethod
    def new(cls, folder: Path, agent: str, environment: str) -> Job:
        """Make the folder of a new job.

        Raises:
            ConfigError: it is not empty.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"--out: {folder} is not empty; pass a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, {"name": agent}, environment)

    def add(
        self, outcome: TrialOutcome, worked: Sequence[Worked] = (), **settings: Any
    ) -> TrialResult:
        """Write a trial that has just ended; result.json, the last of its files, marks it as finished.

        Args:
            worked: the agent's work in each step that it reached.
            settings: more keyword arguments of the agent.
        """
        kwargs = {**self.agent.get("kwargs", {}), **settings}
        agent: dict[str, Any] = {**self.agent, "kwargs": kwargs}
        task, finished = outcome.task, datetime.now(UTC)
        folder = self.folder / trial_name(task)
        folder.mkdir(parents=True)
        lines = (f"{finished.isoformat()} {note}\n" for note in (*task.warnings, *outcome.notes))
        (folder / "trial.log").write_text("".join(lines))
        ends = finished
        steps: list[StepResult] = []
        for step, own, work in reversed([*zip_longest(outcome.steps, task.steps, worked)]):
            if step is None:
                continue
            _keep(folder if step.name is None else folder / "steps" / step.name, step, work)
            steps.insert(0, _step(step, Integrity.of(own), ends, work))  # counted back from the end
            ends -= timedelta(seconds=step.agent_s + step.verifier_s)
        if not outcome.steps and not task.has_steps:
            for part in _parts(folder):
                part.mkdir()
        only = steps[0] if steps and not task.has_steps else None
        model = agent.get("model_name")
        mode = None if task.has_steps else (task.config.verifier.mode or VerifierMode.shared)
        config: dict[str, Any] = {
            "task": {"path": str(task.path), "source": task.source},
            "trial_name": folder.name,
            "trials_dir": str(self.folder),
            "agent": {key: value for key, value in agent.items() if value},
            "environment": self.environment,
            "verifier": {},
            "job_id": str(self.id),
        }
        result = TrialResult(
            task_name=task.name,
            trial_name=folder.name,
            task_id={"path": str(task.path)},
            task_checksum=task.digest(),
            config=config,
            source=task.source,
            agent_info=AgentInfo(
                name=agent["name"],
                version=AGENT_VERSION,
                model_info=ModelInfo(name=model) if model else None,
            ),
            agent_result=only.agent_result if only else None,
            verifier_result=_rewards(outcome.rewards, outcome.integrity),
            exception_info=None if outcome.error is None else ExceptionInfo.of(outcome.error),
            agent_execution=only.agent_execution if only else None,
            verifier=only.verifier if only else None,
            step_results=tuple(steps) if task.has_steps else None,
        )
        unread = {
            "id": str(uuid4()),
            "trial_uri": folder.resolve().as_uri(),
            "verifier_environment_mode": mode,
            "started_at": (finished - timedelta(seconds=outcome.wall_s)).isoformat(),
            "finished_at": finished.isoformat(),
        }
        write_json(folder / CONFIG_FILE, config)
        if result.exception_info is not None:
            (folder / "exception.txt").write_text(result.exception_info.exception_traceback)
        write_json(folder / RESULT_FILE, {**plain(result), **unread})
        self.trials.append(result)
        return result

    def write(self, n_total: int, **config: Any) -> None:
        """Write config.json and result.json beside the trials' folders.

        Args:
            n_total: the planned number of trials.
            config: Harbor's job configuration: "n_concurrent_trials", "tasks", …; missing keys have
                Harbor's defaults.
        """
        now = datetime.now(UTC).isoformat()
        places = {"job_name": self.folder.name, "jobs_dir": str(self.folder.parent)}
        worker = {"agents": [dict(self.agent)], "environment": dict(self.environment)}
        write_json(self.folder / CONFIG_FILE, {**places, **config, **worker})
        result = {
            "id": str(self.id),
            "started_at": self.started.isoformat(),
            "updated_at": now,
            "finished_at": now if len(self.trials) >= n_total else None,
            "n_total_trials": n_total,
            "stats": job_stats(self.trials, n_total),
        }
        write_json(self.folder / RESULT_FILE, result)


def trial_name(task: Task) -> str:
    """Return the first 32 characters of the task folder's name, and 7 random ones."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(7))
    return f"{task.label.rpartition('/')[2][:32].rstrip('_-')}__{suffix}"


def _parts(folder: Path) -> tuple[Path, Path, Path]:
    """Return the folders of the agent's logs, the verifier's logs and the artifacts."""
    return folder / "agent", folder / "verifier", folder / "artifacts"


def _keep(folder: Path, step: StepOutcome, work: Worked | None) -> None:
    """Write a step's files: the agent's, the verifier's output and results, and the artifacts.

    Of artifacts with one destination, or one below the other's, the first is written.
    """
    agent, verifier, artifacts = _parts(folder)
    for part in (agent, verifier, artifacts):
        part.mkdir(parents=True)
    tree.keep(agent, step.agent_files)
    if work is not None and work.trajectory is not None:
        write_json(agent / "trajectory.json", work.trajectory)
    tree.keep(verifier, step.verifier_files.without((_OUTPUT_FILE,)))
    (verifier / _OUTPUT_FILE).write_text(step.verifier_output)
    if step.rewards is not None:
        (verifier / JSON_FILE).write_text(json.dumps(dict(step.rewards)))
    taken: list[PurePosixPath] = []
    for one in step.collected:
        at = PurePosixPath(one.destination)
        if not any(at.is_relative_to(other) or other.is_relative_to(at) for other in taken):
            taken.append(at)
            tree.keep(artifacts, one.found.at(one.destination))


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
