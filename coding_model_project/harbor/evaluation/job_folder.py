"""A writer of a job's folder in Harbor's format: its trials (`outcome`), and the job's own files."""

from __future__ import annotations

import json
import secrets
import string
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from coding_model_project.atomic import write_json
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.evaluation.scores import job_stats
from coding_model_project.harbor.failures import exception_type
from coding_model_project.harbor.format.reward_rules import JSON_FILE, Rewards
from coding_model_project.harbor.format.task import Task, check_new
from coding_model_project.harbor.format.task_config import VerifierMode
from coding_model_project.harbor.outcome import (
    CONFIG_FILE,
    OWN_KEY,
    RESULT_FILE,
    StepOutcome,
    TrialOutcome,
    TrialResult,
)
from coding_model_project.redaction import redacted

AGENT_VERSION = "1"
_OUTPUT_FILE = "test-stdout.txt"
_ALPHABET = "".join(sorted(set(string.ascii_letters + string.digits) - set("01IOl")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """An agent's work in one step."""

    prompt_tokens: int
    completion_tokens: int
    metadata: Mapping[str, Any]
    """Its `ending`, its number of `turns`, and more."""
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
        check_new(folder)
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
        steps: list[dict[str, Any]] = []
        agent_s = sum(step.agent_s for step in outcome.steps)
        judge_s = sum(step.verifier_s for step in outcome.steps)
        begins = finished - timedelta(seconds=agent_s + judge_s)
        for number, step in enumerate(outcome.steps):
            work = worked[number] if number < len(worked) else None
            _keep(folder if step.name is None else folder / "steps" / step.name, step, work)
            ended = _step(step, begins, work)
            steps.append(ended if step.name is None else {"step_name": step.name, **ended})
            begins += timedelta(seconds=step.agent_s + step.verifier_s)
        if not outcome.steps and not task.has_steps:
            for part in _parts(folder):
                part.mkdir()
        model, digest = agent.get("model_name"), task.digest()
        exception = _exception(outcome.error)
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
            trial_name=folder.name,
            task_name=task.name,
            path=str(task.path),
            source=task.source,
            digest=digest,
            attempt=settings.get("attempt"),
            agent=agent["name"],
            model=model,
            rewards=outcome.rewards,
            integrity=outcome.integrity,
            exception=None if outcome.error is None else exception_type(outcome.error),
            exceptions=tuple(outcome.exceptions),
            error=next((f"{exception_type(e)}: {redacted(str(e))}" for e in outcome.errors), ""),
            ending=worked[-1].metadata.get("ending") if worked else None,
            turns=sum(one.metadata.get("turns", 0) for one in worked),
            prompt_tokens=sum(one.prompt_tokens for one in worked),
            completion_tokens=sum(one.completion_tokens for one in worked),
            agent_s=agent_s,
            judge_s=judge_s,
        )
        mode = task.config.verifier.mode or VerifierMode.shared
        harbors = {
            "id": str(uuid4()),
            "task_name": task.name,
            "trial_name": folder.name,
            "trial_uri": folder.resolve().as_uri(),
            "task_id": {"path": str(task.path)},
            "source": task.source,
            "task_checksum": digest,
            "config": config,
            "agent_info": {
                "name": agent["name"],
                "version": AGENT_VERSION,
                "model_info": {"name": model, "provider": None} if model else None,
            },
            **_timing(finished - timedelta(seconds=outcome.wall_s), finished),
            "verifier_environment_mode": None if task.has_steps else mode,
            **({} if task.has_steps or not steps else steps[0]),
            "verifier_result": _rewards(outcome.rewards),
            "exception_info": exception,
            "step_results": steps if task.has_steps else None,
        }
        write_json(folder / CONFIG_FILE, config)
        if exception is not None:
            (folder / "exception.txt").write_text(exception["exception_traceback"])
        write_json(folder / RESULT_FILE, {**harbors, OWN_KEY: asdict(result)})
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


def _step(step: StepOutcome, begins: datetime, work: Worked | None) -> dict[str, Any]:
    """Return a step in Harbor's format."""
    verifies = begins + timedelta(seconds=step.agent_s)
    ends = verifies + timedelta(seconds=step.verifier_s)
    used = None
    if work is not None:
        used = {
            "n_input_tokens": work.prompt_tokens,
            "n_output_tokens": work.completion_tokens,
            "metadata": dict(work.metadata),
        }
    return {
        "agent_result": used,
        "verifier_result": _rewards(step.rewards),
        "exception_info": _exception(step.error),
        "agent_execution": _timing(begins, verifies),
        "verifier": _timing(verifies, ends),
    }


def _timing(begins: datetime, ends: datetime) -> dict[str, str]:
    return {"started_at": begins.isoformat(), "finished_at": ends.isoformat()}


def _rewards(rewards: Rewards | None) -> dict[str, Any] | None:
    return None if rewards is None else {"rewards": dict(rewards)}


def _exception(error: Exception | None) -> dict[str, Any] | None:
    """Return an exception in Harbor's format, by Harbor's name for it."""
    if error is None:
        return None
    return {
        "exception_type": exception_type(error),
        "exception_message": redacted(str(error)),
        "exception_traceback": redacted("".join(traceback.format_exception(error))),
        "occurred_at": datetime.now(UTC).isoformat(),
    }
