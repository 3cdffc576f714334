"""A run's folder: its layout, its attempts, and the refusal to go on with another configuration.

config.yaml            the resolved configuration
run.json               where the run comes from (`provenance`)
patches/               what the working tree had that the commit has not
metrics.jsonl          a line per step: {"step", "data": {metric: value}}
evaluations.jsonl      scores of its checkpoints, if they were watched (`evaluation.watch`)
rollouts.jsonl         a line per judged sample (`rollouts`)
traces/                where a step's time went, to open in Perfetto (`step_traces`)
checkpoints/           verl's, each with a manifest (`checkpoints`)
logs/attempt_N/        console.log, and attempt.json: when it started, how it ended
summary.json           written once the run is finished
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig

from coding_model_project.errors import INTERRUPTED, ConfigError, StorageError
from coding_model_project.runs import provenance
from coding_model_project.runs.inputs import Inputs, changes
from coding_model_project.runs.refusal import (
    comparable,
    forget,
    has_made_something,
    refuse_changes,
    settings_changed,
)
from coding_model_project.storage.object_store import as_url, is_url

FATAL = "fatal.txt"
"""In an attempt's log folder: the one line that says why a run was stopped from within."""
_FULL_BYTES = 8 * 2**20


class State(StrEnum):
    """How a run stands, by its last attempt."""

    running = "running"
    finished = "finished"
    interrupted = "interrupted"
    """It was asked to stop; the same command resumes it."""
    failed = "failed"
    """It ended with an error."""
    killed = "killed"
    """It ended without a word: kill -9, out of memory, a lost machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a run. A run that is resumed has several."""

    number: int
    pid: int
    pid_started: float
    """The process's start in seconds since the epoch: process ids come again."""
    host: str
    started: float
    ended: float | None = None
    exit_code: int | None = None
    error: str | None = None
    """In one line, what ended it."""

    @property
    def state(self) -> State:
        if self.exit_code is not None:
            return {0: State.finished, INTERRUPTED: State.interrupted}.get(
                self.exit_code, State.failed
            )
        # Another host's processes cannot be seen from here: believe the file.
        alive = self.host != socket.gethostname() or _is_process(self.pid, self.pid_started)
        return State.running if alive else State.killed


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names of the things in a run's folder, and what can be read from it at any time."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def run_json(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    def log_dir(self, attempt: int) -> Path:
        return self.path / "logs" / f"attempt_{attempt}"

    def attempts(self) -> list[Attempt]:
        """All attempts so far, in order."""
        files = sorted(
            self.path.glob("logs/attempt_*/attempt.json"),
            key=lambda file: int(file.parent.name.removeprefix("attempt_")),
        )
        return [Attempt(**json.loads(file.read_text())) for file in files]

    @property
    def state(self) -> State:
        attempts = self.attempts()
        return attempts[-1].state if attempts else State.killed

    def provenance(self) -> dict[str, Any]:
        """What `run.json` says.

        Raises:
            ConfigError: this is not a run's folder.
        """
        try:
            return json.loads(self.run_json.read_text())
        except FileNotFoundError as error:
            raise ConfigError(f"{self.path}: not a run's folder (it has no run.json)") from error

    def inputs(self) -> Inputs:
        """The data and the model that it was started with (`inputs`); empty if it was not noted.

        Raises:
            ConfigError: this is not a run's folder.
        """
        return self.provenance().get("inputs", {})


def full_disk(path: Path) -> str:
    """A remark for errors that are no wonder: empty unless the run's disk is full."""
    free = shutil.disk_usage(path).free
    if free > _FULL_BYTES:
        return ""
    return f"; the disk of {path} is full ({free / 2**20:.1f} MB free): make room and start again"


def find_runs(root: Path) -> list[RunFolder]:
    """All runs below a folder, newest first."""
    # config.yaml is written after run.json: a kill in between leaves no run.
    found = [RunFolder(file.parent) for file in root.rglob("run.json")]
    found = [run for run in found if run.config.exists()]
    return sorted(found, key=lambda run: run.run_json.stat().st_mtime, reverse=True)


def runs_at(path: Path) -> list[RunFolder]:
    """The run whose folder this is, else all runs below it, newest first.

    Raises:
        ConfigError: there is none.
    """
    if (path / "run.json").exists():
        return [RunFolder(path)]
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder")
    if found := find_runs(path):
        return found
    raise ConfigError(f"{path}: not a run's folder (it has no run.json), and no run is below it")


def start_attempt(
    path: Path,
    config: DictConfig,
    *,
    inputs: Inputs,
    recipe: str,
    command: list[str],
    force: bool,
    say: Callable[[str], None] = lambda _: None,
) -> Attempt:
    """Make or reopen a run's folder and note that an attempt begins.

    Attempts that made nothing do not bind the next one: with other settings it starts the run anew.

    Args:
        config: saved resolved, and compared with the one the run was started with.
        inputs: data and model as they are now; noted, and compared with those it was started with.
        force: go on although something has changed; the new replaces the old.
        say: told that the run starts anew.

    Raises:
        ConfigError: configuration or inputs have changed (with the difference), or the run is running.
    """
    run = RunFolder(path)
    attempts = run.attempts()
    if attempts and attempts[-1].state is State.running:
        last = attempts[-1]
        raise ConfigError(
            f"coding.run_dir={path}: the run is running (process {last.pid} on {last.host}); "
            "choose another folder"
        )
    if not force:
        refuse_changes(run, config, inputs)
    anew = _starts_anew(run, attempts, config, inputs)
    if anew:
        say(
            f"{path}: the last attempt {_how(attempts[-1])} and made nothing; starting anew ({anew})"
        )
        forget(run)
        shutil.rmtree(run.path / "patches", ignore_errors=True)
    for folder in (run.path, run.checkpoints, run.traces):
        folder.mkdir(parents=True, exist_ok=True)
    if anew or not run.run_json.exists():
        origin = provenance.collect(recipe, command, seeds=provenance.seeds(config))
        write_json(run.run_json, origin | {"inputs": inputs})
        provenance.write_patches(run.path / "patches")
    elif run.inputs() != inputs:
        write_json(run.run_json, run.provenance() | {"inputs": inputs})
    write_text(run.config, comparable(config))
    run.summary.unlink(missing_ok=True)
    me = psutil.Process()
    attempt = Attempt(
        number=len(attempts) + 1,
        pid=me.pid,
        pid_started=me.create_time(),
        host=socket.gethostname(),
        started=time.time(),
    )
    _write_attempt(run, attempt)
    return attempt


def end_attempt(path: Path, attempt: Attempt, error: BaseException | None = None) -> None:
    """Note how an attempt ended. A full disk must not hide why: what cannot be written is left out."""
    if error is None:
        code, reason = 0, None
    elif isinstance(error, KeyboardInterrupt):
        code, reason = INTERRUPTED, None
    else:
        code = getattr(error, "exit_code", 1)
        reason = " ".join(str(error).split()) or type(error).__name__
    ended = replace(attempt, ended=time.time(), exit_code=code, error=reason)
    with contextlib.suppress(OSError):
        _write_attempt(RunFolder(path), ended)


def _starts_anew(
    run: RunFolder, attempts: Sequence[Attempt], config: DictConfig, inputs: Inputs
) -> str:
    """Return what has changed since attempts that made nothing; empty if the run goes on."""
    if not attempts or not run.run_json.exists() or has_made_something(run):
        return ""
    changed = [*settings_changed(run, config), *changes(run.inputs(), inputs)]
    return "; ".join(changed)


def _how(attempt: Attempt) -> str:
    """How an attempt ended, in a few words."""
    ways = {State.interrupted: "was interrupted", State.killed: "was killed"}
    return ways.get(attempt.state, attempt.state.value)


def refuse_unusable(key: str, folder: str) -> None:
    """Make a run's folder, and make sure that something can be written into it.

    Args:
        key: that names the folder, for the message.

    Raises:
        ConfigError: it is a file, or cannot be made or written.
        StorageError: the disk is full.
    """
    way = f"set {key} to a folder that you can write into"
    if not folder:
        raise ConfigError(f"{key}=: no folder given; {way}")
    refuse_url(key, folder)
    path = Path(folder).expanduser().absolute()
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ConfigError(f"{key}={folder}: {part} is a file, not a folder; {way}")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"{key}={folder}: {error.strerror}; make room") from error
        raise ConfigError(f"{key}={folder}: cannot be written ({error.strerror}); {way}") from error


def refuse_url(key: str, folder: str | Path) -> None:
    """Refuse a URL where work in progress needs a folder.

    Raises:
        ConfigError: it is one.
    """
    if is_url(folder):
        raise ConfigError(
            f"{key}={as_url(folder)}: work in progress needs a folder of this machine; name one, and set "
            "coding.mirror.url to copy a training's or an evaluation's there"
        )


@contextlib.contextmanager
def sole_writer(folder: Path, what: str) -> Iterator[None]:
    """Meanwhile no other process gets in here; ends with the process, in whatever way that ends.

    Args:
        what: what writes, for the message.

    Raises:
        ConfigError: another one is in.
        StorageError: the folder cannot be written.
    """
    refuse_url("--out", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written ({error.strerror})") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another {what} writes into this folder; wait for it, or choose another "
                "one (coding.run_dir, --out)"
            ) from None
        yield
    finally:
        os.close(lock)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def _write_attempt(run: RunFolder, attempt: Attempt) -> None:
    folder = run.log_dir(attempt.number)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "attempt.json", asdict(attempt))


def _is_process(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 2 and process.status() != "zombie"
    except psutil.NoSuchProcess:
        return False
