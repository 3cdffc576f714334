"""The job log, and what commands do with a job on any back end: submit, follow, stop and fetch.

The log is `job.json` in each job's folder, which all commands but `submit` read. It is written before
the back end is called. So if `submit` dies in between, the job can still be found by its name.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from coding_model_project.atomic import write_json
from coding_model_project.contained import below, open_lock, single
from coding_model_project.errors import (
    CodingModelError,
    ConfigError,
    DataError,
    JobError,
    StorageError,
)
from coding_model_project.evaluation.tables import markdown_table
from coding_model_project.launch.jobs.base import Backend, Job, JobState
from coding_model_project.launch.jobs.source import Source, write_package
from coding_model_project.redaction import redacted
from coding_model_project.runs.following import RUN_JSON, is_same_run
from coding_model_project.storage.fetching import Copied, copy_changed
from coding_model_project.storage.object_store import ObjectStore
from coding_model_project.storage.store_errors import explaining

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
        file = self._file(name)
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
                file = self._file(job.name)
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
            write_json(self._file(job.name), _JOB.dump_python(noted))
        return noted

    def _file(self, name: str) -> Path:
        return below(self.folder, single(name)) / _FILE

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
    cells = map(cells_of, reversed(jobs))
    return markdown_table(_COLUMNS, ([one[column] for column in _COLUMNS] for one in cells)) + "\n"


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


# ── one job on any back end ───────────────────────────────────────────────────────────────────────────


PATCH = "uncommitted.patch"
PACKAGE = "source.zip"
_POLL_S = 1.0
_KILLED_S = 180.0
"""Wall seconds for a killed job to end: Ray kills 60 s after its SIGTERM, SageMaker after 120 s."""

_SILENT_S = 120.0
"""Wall seconds without an answer after which `follow` and `stop` give up."""

Say = Callable[[str], None]
_T = TypeVar("_T")


def check_recipe(recipe: str, given: Sequence[str]) -> None:
    """Check the recipe's configuration, since a job may wait for long before it finds a wrong key.

    It needs verl for the recipes that train. A login node may have none.

    Raises:
        ConfigError: a key or value is wrong.
    """
    from importlib.util import find_spec

    from coding_model_project.launch.checks import checks
    from coding_model_project.launch.compose import compose_recipe

    if recipe == "baseline" or find_spec("verl") is not None:
        checks.check_values(compose_recipe(recipe, list(given)))


def submit(backend: Backend, job: Job, source: Source, log: JobLog) -> None:
    """Ship the source and start the job, with a record before and after.

    After an error the job may run nevertheless, since a client may have lost the answer, or repeated a
    request whose answer it lost: a job of its name is this one.

    Raises:
        ConfigError, JobError: the job was not submitted, and the log records that; or, as the message
            says, that is unknown.
    """
    backend.check(job)
    log.add(job)
    handle: Mapping[str, str] = {}
    try:
        if backend.state(job) is not JobState.unknown:
            raise ConfigError(
                f"--name={job.name}: {job.where} has a job of this name; choose another"
            )
        folder = Path(job.folder)
        if source.patch:
            (folder / PATCH).write_bytes(source.patch)
        write_package(source, folder / PACKAGE)
    except (CodingModelError, OSError):
        log.note(job, state=JobState.refused)
        raise
    try:
        handle = backend.submit(job, folder / PACKAGE)
    except (CodingModelError, OSError) as error:
        try:
            started = backend.state(job) is not JobState.unknown
        except CodingModelError as silence:
            raise JobError(
                f"{error}; `jobs list` shows whether {job.name} runs, once {job.where} answers"
            ) from silence
        if not started:
            log.note(job, state=JobState.refused)
            if isinstance(error, JobError):
                raise JobError(f"{error}; the job was not submitted: try again") from error
            raise
    log.note(job, handle=handle, state=JobState.pending)


def refresh(job: Job, backend: Backend, log: JobLog) -> Job:
    """Return a job with its current state, which is recorded."""
    if job.state.ended or (state := backend.state(job)) is job.state:
        return job
    return log.note(job, state=state)


def follow(job: Job, backend: Backend, log: JobLog) -> Iterator[bytes]:
    """Yield a job's output as it appears, until the job has ended.

    Raises:
        JobError: the back end has no record of the job.
    """
    seen = 0
    job = _known(job, backend, log)
    while True:
        started = time.monotonic()
        pending = job.state is JobState.pending
        output = b"" if pending else _patiently(partial(backend.log, job))
        if len(output) > seen:
            yield output[seen:]
            seen = len(output)
        if job.state.ended:
            return
        # Reading a long output takes long: spend at most a tenth of the time on it.
        time.sleep(max(_POLL_S, 9 * (time.monotonic() - started)))
        # The state comes before the log, so that an ended job's output is complete.
        job = _patiently(partial(_known, job, backend, log))


def stop(job: Job, backend: Backend, log: JobLog, *, wait_s: float | None, say: Say) -> Job:
    """Stop a job after a checkpoint; kill it if it still runs after `wait_s`.

    Args:
        wait_s: seconds to wait before the kill; None kills the job at once.

    Raises:
        JobError: the job survived the kill, or the back end has no record of it.
    """
    job = _known(job, backend, log)
    if job.state.ended:
        say(f"{job.name}: has ended ({job.state})")
        return job
    if wait_s is not None and job.state is JobState.running and backend.ask_to_stop(job):
        say(f"{job.name}: saving a checkpoint before it ends; waiting up to {wait_s:.0f} s")
        job = _wait(job, backend, log, wait_s)
        if job.state.ended:
            return job
        say(f"{job.name}: still running after {wait_s:.0f} s; ending it without a checkpoint")
    backend.kill(job)
    job = _wait(job, backend, log, _KILLED_S)
    if not job.state.ended:
        raise JobError(
            f"{job.name}: still {job.state} {_KILLED_S:.0f} s after it was killed; try again"
        )
    return job


def _known(job: Job, backend: Backend, log: JobLog) -> Job:
    """Return a job with its current state.

    Raises:
        JobError: the back end has no record of the job.
    """
    if (job := refresh(job, backend, log)).state is JobState.unknown:
        raise JobError(
            f"{job.name}: the back end has no record of this job; it never began, or was forgotten"
        )
    return job


def _wait(job: Job, backend: Backend, log: JobLog, seconds: float) -> Job:
    deadline = time.monotonic() + seconds
    while not (job := _patiently(partial(refresh, job, backend, log))).state.ended:
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return job


def _patiently(ask: Callable[[], _T]) -> _T:
    """Call a back end; repeat it for a while if it does not answer, since jobs outlive short outages."""
    until = time.monotonic() + _SILENT_S
    while True:
        try:
            return ask()
        except JobError:
            if time.monotonic() >= until:
                raise
            time.sleep(_POLL_S)


# ── copies of a run's folder ─────────────────────────────────────────────────────────────────────────

CHECKPOINTS = "checkpoints/"


def source_of(job: Job) -> str:
    """Return the place of a job's run: its `coding.run_dir` if this machine has it, else its mirror.

    Raises:
        ConfigError: this machine has no such folder, and the job has no mirror.
    """
    source = job.run_dir if Path(job.run_dir).is_dir() else job.mirror
    if not source:
        raise ConfigError(
            f"coding.run_dir={job.run_dir}: not on this machine, and the job has no coding.mirror.url; "
            "run `jobs fetch` where the folder is, give its URL by --from, or submit with that key"
        )
    return source


def fetch(source: str, out: Path, *, checkpoints: bool) -> Copied:
    """Copy a run's folder; a repeated call copies only changed files.

    Args:
        source: the folder, or its URL, maybe of its mirror.
        checkpoints: whether to copy checkpoints too.

    Raises:
        ConfigError: nothing is there, or the user can correct why it cannot be read.
        CodingModelError: copying failed. Every file here is complete, and the next call resumes.
    """
    store = ObjectStore(source, "run folder", attempts=3)
    with explaining(source):
        entries = store.entries()
        if not entries:
            raise ConfigError(f"{store.url}: nothing there yet; the run has not begun to write")
        run, own = store.read(RUN_JSON), out / RUN_JSON
        if run is not None and own.exists() and not is_same_run(run, own.read_bytes()):
            raise ConfigError(f"--out={out}: contains another run; choose another folder")
        wanted = {
            path: entry
            for path, entry in entries.items()
            if checkpoints or not path.startswith(CHECKPOINTS)
        }
        return copy_changed(store, wanted, out)
