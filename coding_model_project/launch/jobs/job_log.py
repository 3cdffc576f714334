"""The job log: `job.json` in each job's folder, the record that all commands but `submit` read.

It is written before the back end is called. So if `submit` dies in between, the job can still be found by
its name.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from coding_model_project.atomic import write_json
from coding_model_project.contained import below, open_lock, single
from coding_model_project.errors import ConfigError, DataError, StorageError
from coding_model_project.launch.jobs.base import Job, JobState
from coding_model_project.redaction import redacted

_FILE = "job.json"
_JOB = TypeAdapter(Job)
_COLUMNS = (
    *("name", "state", "command", "commit", "patch", "description"),
    *("folder", "submitted", "ended"),
)


class JobLog:
    """The records in one folder, which has a folder for each job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def jobs(self) -> list[Job]:
        """Return all jobs, oldest first.

        Raises:
            DataError: a record is damaged; the message names it.
        """
        found = map(_read, self.folder.glob(f"*/{_FILE}"))
        return sorted(found, key=lambda job: (job.submitted, job.name))

    def job(self, name: str) -> Job:
        """Return one job.

        Raises:
            ConfigError: the log has no such job.
        """
        file = below(self.folder, single(name)) / _FILE
        if file.exists():
            return _read(file)
        last = ", ".join(job.name for job in self.jobs()[-3:]) or "none"
        raise ConfigError(
            f"{name}: no such job in {self.folder} (last ones: {last}); see `jobs list`, or give --jobs"
        )

    def add(self, job: Job) -> None:
        """Record a job before its submission.

        Raises:
            ConfigError: the job's name is taken.
            StorageError: the record cannot be written.
        """
        try:
            with self._locked():
                file = self.folder / job.name / _FILE
                if file.exists() and _read(file).state is not JobState.refused:
                    raise ConfigError(
                        f"--name={job.name}: a job of this name was submitted before; choose another "
                        "name (coding.run_dir, not the name, makes a job resume)"
                    )
                # Only for this user: the overrides of a job may have secrets.
                file.parent.mkdir(mode=0o700, exist_ok=True)
                write_json(file, _JOB.dump_python(job))
        except OSError as error:
            raise StorageError(
                f"--jobs={self.folder}: cannot be written ({error.strerror})"
            ) from error

    def note(self, job: Job, **changes: Any) -> Job:
        """Record a job's new `state` or `handle`, and return the job."""
        with self._locked():
            noted = replace(self.job(job.name), **changes)
            if noted.state.ended and noted.ended is None:
                noted = replace(noted, ended=time.time())
            write_json(self.folder / job.name / _FILE, _JOB.dump_python(noted))
        return noted

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the log's folder against other commands."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not any(self.folder.iterdir()):  # a job's package must not contain earlier packages
            (self.folder / ".gitignore").write_text("*\n")
        lock = open_lock(self.folder / ".lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def table(jobs: Sequence[Job]) -> str:
    """Return jobs as a Markdown table, newest first."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for cells in map(cells_of, reversed(jobs)):
        texts = (" ".join(cells[column].split()).replace("|", "\\|") for column in _COLUMNS)
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def cells_of(job: Job) -> dict[str, str]:
    """Return what tables show of a job, by column."""
    return {
        "name": job.name,
        "where": job.where,
        "state": job.state,
        "recipe": job.recipe,
        "command": f"`{redacted(job.command)}`",
        "commit": job.commit[:12],
        "patch": job.patch[:12] or "none",
        "description": job.description,
        "folder": job.run_dir,
        "submitted": _when(job.submitted),
        "ended": _when(job.ended) if job.ended else "",
    }


def _when(seconds: float) -> str:
    """Format a time in UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def _read(file: Path) -> Job:
    try:
        return _JOB.validate_json(file.read_bytes())
    except ValueError as error:
        raise DataError(
            f"{file}: damaged ({' '.join(str(error).split())}); remove its folder"
        ) from error
