"""Graceful stop on SIGTERM, as clusters send it: finish the step, save a checkpoint, end."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType

from coding_model_project.runs.folder import RunFolder, State

_FILE = "stop"
_SAME_S = 2.0
"""Seconds within which signals are one: `scancel` and preemption signal a job's script, which passes the
signal on, and the run itself."""


def stop_requested(log_dir: Path) -> bool:
    """Return whether a stop of the attempt was requested; trainers check it after each step."""
    return (log_dir / _FILE).exists()


def ask_to_stop(run: RunFolder) -> bool:
    """Request that a run saves a checkpoint and ends; works from any process that sees its folder.

    Returns:
        False if the run is not running.
    """
    attempts = run.attempts()
    if not attempts or attempts[-1].state is not State.running:
        return False
    (run.log_dir(attempts[-1].number) / _FILE).touch()
    return True


class StopSignal:
    """A context manager in which SIGTERM requests a stop; another one, later, interrupts at once.

    The request is a file, since the trainer is another process, maybe on another host. Leaving raises
    KeyboardInterrupt if a stop was requested. It replaces any error, because workers that receive the
    signal too fail in many ways.

    Args:
        log_dir: the attempt's log folder.
        listen: False does not handle signals, for a caller with its own handlers.
    """

    def __init__(self, log_dir: Path, *, listen: bool) -> None:
        self._log_dir = log_dir
        self._listen = listen
        self._asked_at: float | None = None

    def __enter__(self) -> None:
        if self._listen:
            self._before = signal.signal(signal.SIGTERM, self._request)

    def _request(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is not None and now - self._asked_at < _SAME_S:
            return
        if stop_requested(self._log_dir):
            raise KeyboardInterrupt
        self._asked_at = now
        (self._log_dir / _FILE).touch()
        # os.write, since this handler may have interrupted a print.
        with suppress(OSError):  # the terminal may have been closed
            os.write(
                2, b"SIGTERM: ending after this step, with a checkpoint; again to end at once\n"
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listen:
            signal.signal(signal.SIGTERM, self._before)
        if stop_requested(self._log_dir):
            raise KeyboardInterrupt from error
