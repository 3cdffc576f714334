"""A run's folder: its layout, its attempts, and locks against a second writer.

config.yaml            the resolved configuration
run.json               the run's provenance (`provenance`)
patches/               uncommitted changes of the working tree
metrics.jsonl          a line per step: {"step", "data": {metric: value}}
evaluations.jsonl      scores of the checkpoints, if they were watched (`evaluation.watch`)
rollouts.jsonl         a line per judged sample (`rollouts`); ungradable.jsonl per other one
traces/                timing of a step, to open in Perfetto (`verl_ext.trainers.samples`)
checkpoints/           verl's checkpoints, each with a manifest (`checkpoints`)
logs/attempt_N/        console.log; attempt.json with start and ending (`Attempt`); heartbeat (`lease`)
summary.json           written once the run is finished
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_model_project.contained import open_lock
from coding_model_project.errors import INTERRUPTED, ConfigError, DataError, StorageError
from coding_model_project.redaction import redacted
from coding_model_project.runs.lease import OBSERVER, has_successor, machine, start_ticks
from coding_model_project.storage.object_store import as_url, is_url

if TYPE_CHECKING:
    from coding_model_project.runs.resuming import Inputs

STOP = "stop"
"""File in an attempt's log folder that requests a stop."""
FATAL = "fatal.txt"
"""File in an attempt's log folder with the one-line reason why the run stopped itself."""
_FULL_BYTES = 8 * 2**20
_ATTEMPT = re.compile(r"attempt_(\d{1,9})")


ATTEMPT = "attempt.json"
"""File in an attempt's log folder with the fields of `Attempt`."""


class State(StrEnum):
    """The state of a run, from its last attempt."""

    running = "running"
    finished = "finished"
    interrupted = "interrupted"
    """Stopped on request; the same command resumes it."""
    failed = "failed"
    """Ended with an error."""
    killed = "killed"
    """Ended without a record: kill -9, out of memory, a lost machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a run. A resumed run has several."""

    number: int
    pid: int
    pid_ticks: int
    """The process's start (`lease.start_ticks`), since process ids are reused."""
    host: str
    machine: str
    """The machine on which the process id is valid (`lease.machine`)."""
    started: float
    log_dir: Path
    """The folder it was read from; not in the file."""
    ended: float | None = None
    exit_code: int | None = None
    error: str | None = None
    """The error that ended it, in one line."""

    @property
    def state(self) -> State:
        if self.exit_code is not None:
            return {0: State.finished, INTERRUPTED: State.interrupted}.get(
                self.exit_code, State.failed
            )
        if self.is_here:
            alive = self.is_process
        else:
            alive = not has_successor(self.log_dir) and OBSERVER.seems_alive(self.log_dir)
        return State.running if alive else State.killed

    @property
    def is_here(self) -> bool:
        """True if its process would be visible on this machine."""
        return self.machine == machine()

    @property
    def is_process(self) -> bool:
        """True if its process is running on this machine."""
        return start_ticks(self.pid) == self.pid_ticks


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths in a run's folder, and what can be read from it at any time."""

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
        """Return all attempts so far, in order."""
        files = {
            int(match[1]): file
            for file in self.path.glob(f"logs/attempt_*/{ATTEMPT}")
            if (match := _ATTEMPT.fullmatch(file.parent.name))
        }
        return [_attempt(number, file) for number, file in sorted(files.items())]

    @property
    def last_number(self) -> int:
        """The number of the last attempt; 0 before the first. Numbers may have gaps."""
        attempts = self.attempts()
        return attempts[-1].number if attempts else 0

    @property
    def state(self) -> State:
        attempts = self.attempts()
        return attempts[-1].state if attempts else State.killed

    def provenance(self) -> dict[str, Any]:
        """Read `run.json`.

        Raises:
            ConfigError: this is not a run's folder.
        """
        try:
            return redacted(json.loads(self.run_json.read_text()))
        except FileNotFoundError as error:
            raise ConfigError(f"{self.path}: not a run's folder (it has no run.json)") from error

    def inputs(self) -> Inputs:
        """Return the data and the model that the run started with (`resuming`); empty if not recorded.

        Raises:
            ConfigError: this is not a run's folder.
        """
        return self.provenance().get("inputs", {})


def plain_config(file: Path) -> dict[str, Any]:
    """Read a recorded configuration.

    Interpolations stay text: a run's folder may come from anybody, and `${oc.env:NAME}` would show this
    process's variable.

    Raises:
        DataError: it has YAML aliases, which no record has; nested, they are values of any size.
    """
    import yaml
    from omegaconf import OmegaConf  # here: its import is slow, and readers of runs are many

    tokens = yaml.scan(file.read_text(), Loader=yaml.CSafeLoader)
    if any(isinstance(token, yaml.AliasToken) for token in tokens):
        raise DataError(f"{file}: has YAML aliases, so no run of this package wrote it")
    plain: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    return plain if isinstance(plain, dict) else {}


def value_at(tree: Any, key: str) -> Any:
    """Return the value of a dotted key in nested dictionaries; None if there is none."""
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _attempt(number: int, file: Path) -> Attempt:
    fields = json.loads(file.read_text())
    # The folder is the attempt's identity, whatever the file says.
    own = {"number": number, "pid": int(fields["pid"]), "log_dir": file.parent}
    try:
        return Attempt(**fields | own)
    except TypeError as error:
        raise DataError(f"{file}: of an older version of this package ({error})") from error


def full_disk(path: Path) -> str:
    """Return a remark for error messages if the run's disk is full, else an empty string."""
    free = shutil.disk_usage(path).free
    if free > _FULL_BYTES:
        return ""
    return f"; the disk of {path} is full ({free / 2**20:.1f} MB free): make room and start again"


def stop_requested(log_dir: Path) -> bool:
    """Return whether a stop of the attempt was requested; trainers check it after each step."""
    return (log_dir / STOP).exists()


def ask_to_stop(run: RunFolder) -> bool:
    """Request that a run saves a checkpoint and ends; works from any process that sees its folder.

    Returns:
        False if the run is not running.
    """
    attempts = run.attempts()
    if not attempts or attempts[-1].state is not State.running:
        return False
    (run.log_dir(attempts[-1].number) / STOP).touch()
    return True


def find_runs(root: Path) -> list[RunFolder]:
    """Return all runs below a folder, newest first."""
    # config.yaml is written after run.json: a kill in between leaves no valid run.
    found = [RunFolder(file.parent) for file in root.rglob("run.json")]
    found = [run for run in found if run.config.exists()]
    return sorted(found, key=lambda run: run.run_json.stat().st_mtime, reverse=True)


def runs_at(path: Path) -> list[RunFolder]:
    """Return the run in this folder, else all runs below it, newest first.

    Raises:
        ConfigError: there is no run.
    """
    if (path / "run.json").exists():
        return [RunFolder(path)]
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder")
    if found := find_runs(path):
        return found
    raise ConfigError(f"{path}: not a run's folder (it has no run.json), and no run is below it")


def refuse_unusable(key: str, folder: str) -> None:
    """Create a run's folder, and check that it is writable.

    Args:
        key: the key that names the folder, for the message.

    Raises:
        ConfigError: the path is a file, or cannot be created or written.
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
    """Raise ConfigError if a folder for work in progress is a URL."""
    if is_url(folder):
        raise ConfigError(
            f"{key}={as_url(folder)}: work in progress needs a folder of this machine; name one, and set "
            "coding.mirror.url to copy a training's or an evaluation's there"
        )


@contextlib.contextmanager
def sole_writer(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder against other writers; the lock ends with the process, however that ends.

    Args:
        what: the kind of writer, for the message.

    Raises:
        ConfigError: another process has the lock.
        StorageError: the folder cannot be written, or its file system has no locks.
    """
    refuse_url("--out", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_lock(folder / ".lock", 0o644)
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
        except OSError as error:
            raise StorageError(
                f"{folder}: cannot be locked ({error.strerror}); mount its file system with locks (on "
                "Lustre -o flock), or choose a folder on another one (coding.run_dir, --out)"
            ) from error
        yield
    finally:
        os.close(lock)
