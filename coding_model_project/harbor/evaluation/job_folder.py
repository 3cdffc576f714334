"""A job's folder in Harbor's format: its trials (`records`), and the job's own files.

JOB/config.json, lock.json, result.json   the job's own files
JOB/TASK__7chars/                         a trial
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from coding_model_project.atomic import write_json
from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import AUTO, ROOMS
from coding_model_project.harbor.environment.base import ENGINES
from coding_model_project.harbor.evaluation.scores import job_stats
from coding_model_project.harbor.outcome import TrialOutcome
from coding_model_project.harbor.records import (
    CONFIG_FILE,
    LOCK_FILE,
    RESULT_FILE,
    TrialResult,
    Worked,
    write_trial,
)


class Job:
    """A job's folder: trials as they end, and the job's own files, which `write` makes anew.

    Args:
        agent: see `records.write_trial`.
        environment: name of the environments (`factory.environments_of`).
    """

    def __init__(self, folder: Path, agent: Mapping[str, Any], environment: str) -> None:
        self.folder, self.agent = folder.resolve(), agent
        self.environment = harbors_name(environment)
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
        """Write a trial that has just ended.

        Args:
            worked: see `records.write_trial`.
            settings: more keyword arguments of the agent.
        """
        trial = write_trial(
            self.folder,
            outcome,
            agent={**self.agent, "kwargs": {**self.agent.get("kwargs", {}), **settings}},
            environment=self.environment,
            job_id=self.id,
            worked=worked,
        )
        self.trials.append(trial)
        return trial

    def write(self, n_total: int, **config: Any) -> None:
        """Write config.json, lock.json and result.json beside the trials' folders.

        Args:
            n_total: the planned number of trials.
            config: Harbor's job configuration: "n_concurrent_trials", "tasks", …; missing keys have
                Harbor's defaults.
        """
        now = datetime.now(UTC).isoformat()
        places = {"job_name": self.folder.name, "jobs_dir": str(self.folder.parent)}
        worker = {"agents": [dict(self.agent)], "environment": dict(self.environment)}
        write_json(self.folder / CONFIG_FILE, {**places, **config, **worker})
        locks = (self.folder / one.trial_name / LOCK_FILE for one in self.trials)
        lock = {
            "schema_version": 3,
            "created_at": self.started.isoformat(),
            "n_concurrent_trials": config.get("n_concurrent_trials", 1),
            "retry": {},
            "trials": [orjson.loads(path.read_bytes()) for path in locks],
        }
        write_json(self.folder / LOCK_FILE, lock)
        result = {
            "id": str(self.id),
            "started_at": self.started.isoformat(),
            "updated_at": now,
            "finished_at": now if len(self.trials) >= n_total else None,
            "n_total_trials": n_total,
            "stats": job_stats(self.trials, n_total),
        }
        write_json(self.folder / RESULT_FILE, result)


def harbors_name(environment: str) -> dict[str, str]:
    """Return Harbor's entry for the environments of this name."""
    if environment in ENGINES:
        return {"type": "docker"}
    own = {
        AUTO: "coding_model_project.harbor.environment.auto:AutoEnvironments",
        ROOMS: "coding_model_project.harbor.rooms.rooms:Room",
    }
    return {"import_path": own.get(environment, environment)}
