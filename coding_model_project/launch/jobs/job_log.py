"""The job log, an append-only `jobs.jsonl`, and its table.

A line is a submitted job (`job`), the back end's identifiers of it (`handle`), or an observed state
(`state`). The job is written before the back end is called. So if `submit` dies in between, the job can
still be found by its name.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from coding_model_project.contained import open_lock
from coding_model_project.errors import ConfigError, DataError, StorageError
from coding_model_project.launch.jobs.base import Job, JobState
from coding_model_project.redaction import redacted

_FILE = "jobs.jsonl"
_JOB = TypeAdapter(Job)
_COLUMNS = (
    *("name", "state", "command", "commit", "patch", "description"),
    *("folder", "submitted", "ended"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A job and its last observed state."""

    job: Job
    state: JobState = JobState.unknown
    ended: float | None = None


class JobLog:
    """The log in one folder, which also contains a folder for each job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._file = self.folder / _FILE

    def entries(self) -> dict[str, Entry]:
        """Return all jobs by name, oldest first.

        Raises:
            DataError: a line is damaged; the message names it.
        """
        found: dict[str, Entry] = {}
        text = self._file.read_text() if self._file.exists() else ""
        for number, line in enumerate(text.splitlines(), 1):
            try:
                _take(json.loads(line), found)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{self._file}:{number}: damaged line ({error}); remove it"
                ) from error
        return found

    def entry(self, name: str) -> Entry:
        """Return one job.

        Raises:
            ConfigError: the log has no such job.
        """
        found = self.entries()
        if name in found:
            return found[name]
        last = ", ".join(list(found)[-3:]) or "none"
        raise ConfigError(
            f"{name}: no such job in {self._file} (last ones: {last}); see `jobs list`, or give --jobs"
        )

    def add(self, job: Job) -> None:
        """Record a job before its submission.

        Raises:
            ConfigError: the job's name is taken.
        """
        with self._locked() as file:
            before = self.entries().get(job.name)
            if before is not None and before.state is not JobState.refused:
                raise ConfigError(
                    f"--name={job.name}: a job of this name was submitted before; choose another name "
                    "(coding.run_dir, not the name, makes a job resume)"
                )
            _append(file, {"job": asdict(job)})

    def note_handle(self, job: Job, handle: Mapping[str, str]) -> None:
        """Record the back end's identifiers of a job."""
        with self._locked() as file:
            _append(file, {"handle": dict(handle), "name": job.name})

    def note_state(self, name: str, state: JobState) -> None:
        """Record the observed state of a job if it changed."""
        with self._locked() as file:
            if self.entries()[name].state is not state:
                _append(file, {"state": state, "name": name, "at": time.time()})

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file for appending, under an exclusive lock.

        Raises:
            StorageError: the file cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not any(self.folder.iterdir()):  # a job's package must not contain earlier packages
                (self.folder / ".gitignore").write_text("*\n")
            # Only for this user: the overrides of a job may have secrets.
            file = open_lock(self._file, 0o600)
        except OSError as error:
            raise StorageError(
                f"--jobs={self.folder}: cannot be written ({error.strerror})"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def table(entries: Mapping[str, Entry]) -> str:
    """Return all jobs as a Markdown table, newest first."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for cells in map(cells_of, reversed(list(entries.values()))):
        texts = (" ".join(cells[column].split()).replace("|", "\\|") for column in _COLUMNS)
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def cells_of(entry: Entry) -> dict[str, str]:
    """Return what tables show of a job, by column."""
    job = entry.job
    return {
        "name": job.name,
        "where": job.where,
        "state": entry.state,
        "recipe": job.recipe,
        "command": f"`{redacted(job.command)}`",
        "commit": job.commit[:12],
        "patch": job.patch[:12] or "none",
        "description": job.description,
        "folder": job.run_dir,
        "submitted": _when(job.submitted),
        "ended": _when(entry.ended) if entry.ended else "",
    }


def _when(seconds: float) -> str:
    """Format a time in UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def _append(file: int, content: Mapping[str, Any]) -> None:
    line = json.dumps(content) + "\n"
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":  # an earlier writer was cut off
        line = "\n" + line
    os.pwrite(file, line.encode(), size)


def _take(line: dict[str, Any], found: dict[str, Entry]) -> None:
    if "job" in line:
        job = _JOB.validate_python(line["job"])
        found[job.name] = Entry(job=job)
        return
    entry = found[line["name"]]
    if "handle" in line:
        found[line["name"]] = replace(entry, job=replace(entry.job, handle=line["handle"]))
        return
    state = JobState(line["state"])
    found[line["name"]] = replace(entry, state=state, ended=line["at"] if state.ended else None)
