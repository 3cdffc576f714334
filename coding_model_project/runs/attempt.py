"""One start of a run, recorded in its log folder, and its state."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from coding_model_project.errors import INTERRUPTED
from coding_model_project.runs.lease import OBSERVER, has_successor, machine, start_ticks

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
    pid_started: float
    """The process's start in seconds since the epoch, since process ids are reused."""
    host: str
    started: float
    ended: float | None = None
    exit_code: int | None = None
    error: str | None = None
    """The error that ended it, in one line."""
    machine: str | None = None
    """The machine on which the process id is valid (`lease.machine`); None in older files."""
    pid_ticks: int | None = None
    """The process's start as returned by `lease.start_ticks`."""
    log_dir: Path | None = None
    """The folder it was read from; not in the file."""

    @property
    def state(self) -> State:
        if self.exit_code is not None:
            return {0: State.finished, INTERRUPTED: State.interrupted}.get(
                self.exit_code, State.failed
            )
        alive = self.is_process if self.is_here else self._seems_alive()
        return State.running if alive else State.killed

    @property
    def is_here(self) -> bool:
        """True if its process would be visible on this machine."""
        if self.machine is None:
            return self.host == socket.gethostname()
        return self.machine == machine()

    @property
    def is_process(self) -> bool:
        """True if its process is running on this machine."""
        if self.pid_ticks is not None:
            return start_ticks(self.pid) == self.pid_ticks
        return _is_process(self.pid, self.pid_started)

    def _seems_alive(self) -> bool:
        if self.log_dir is None:
            return True
        return not has_successor(self.log_dir) and OBSERVER.seems_alive(self.log_dir)


def _is_process(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 2 and process.status() != "zombie"
    except psutil.NoSuchProcess:
        return False
