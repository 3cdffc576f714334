"""The `harbor results` command, and a writer of job folders in Harbor's layout."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from coding_model_project.cli import options
from coding_model_project.config_key import argument
from coding_model_project.errors import ConfigError

if TYPE_CHECKING:
    from coding_model_project.harbor.format.trial_results import TrialResult
    from coding_model_project.harbor.trial_outcome import TrialOutcome


class Job:
    """A writer of a new job folder: trials as they end, then the job's statistics."""

    def __init__(self, folder: Path, agent: str, at_once: int, environment: str) -> None:
        """
        Raises:
            ConfigError: the folder is not empty.
        """
        from datetime import UTC, datetime
        from uuid import uuid4

        from coding_model_project.harbor.recording import Recorder, harbors_name

        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"--out: {folder} is not empty; pass a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        self._recorder = Recorder(
            job=folder.resolve(),
            job_id=uuid4(),
            agent=agent,
            environment=harbors_name(environment),
        )
        self._started, self._at_once = datetime.now(UTC), at_once
        self._trials: list[TrialResult] = []

    def add(self, outcome: TrialOutcome) -> None:
        self._trials.append(self._recorder.record(outcome))

    def finish(self) -> None:
        from coding_model_project.harbor.evaluation.job_results import write_job

        config = {
            "n_concurrent_trials": self._at_once,
            "agents": [{"name": self._recorder.agent}],
            "environment": self._recorder.environment,
            "tasks": [trial.config["task"] for trial in self._trials],
        }
        write_job(
            self._recorder.job,
            self._trials,
            job_id=self._recorder.job_id,
            config=config,
            started_at=self._started,
            n_total=len(self._trials),
            finished=True,
        )


def results(
    job: Path = argument(..., "A job folder, from `harbor grade --out` or Harbor."),
    as_json: options.AsJson = False,
) -> None:
    """Count a job's trials (PASS, FAIL, ERROR by cause), with pass@k and its interval.

    A trial passes if its main reward is at least 1. Rates exclude errors (outages, broken verifiers).
    The last line is JSON.
    """
    from coding_model_project.harbor.evaluation.job_results import scores
    from coding_model_project.harbor.format.trial_results import read_trials

    trials = read_trials(job)
    if not trials:
        raise ConfigError(f"{job}: no trials of a Harbor job in this folder")
    counted = scores(trials)
    if not as_json:
        for key, one in counted.items():
            print(f"{key}: PASS {one.passed}, FAIL {one.failed}, ERROR {sum(one.errors.values())}")
            for cause, number in sorted(one.errors.items()):
                print(f"  error: {number} × {cause}")
            for k, rate in one.pass_at_k.items():
                interval = (
                    f" (95%: {one.interval[0]:.1%} – {one.interval[1]:.1%})" if one.interval else ""
                )
                print(
                    f"  pass@{k}: {rate:.1%} over {one.n_tasks} tasks{interval if k == 1 else ''}"
                )
            if one.n_tasks_without:
                print(f"  {one.n_tasks_without} tasks have no trial without an error")
    print(json.dumps({key: asdict(one) for key, one in counted.items()}))
