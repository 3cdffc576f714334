"""The start and end of an attempt: refusal of a second one, takeover of a dead one, and a graceful stop.

On SIGTERM, as clusters send it, a run finishes its step, saves a checkpoint and ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType, TracebackType

from omegaconf import DictConfig

from coding_model_project.atomic import write_json, write_text
from coding_model_project.errors import INTERRUPTED, ConfigError
from coding_model_project.redaction import redacted
from coding_model_project.runs import lease, provenance, resuming
from coding_model_project.runs.folder import (
    ATTEMPT,
    STOP,
    Attempt,
    RunFolder,
    State,
    stop_requested,
)
from coding_model_project.runs.resuming import Inputs


def start_attempt(
    path: Path,
    config: DictConfig,
    *,
    inputs: Inputs,
    recipe: str,
    command: list[str],
    force: bool,
    bound: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
    observer: lease.Observer = lease.OBSERVER,
) -> Attempt:
    """Create or reopen a run's folder and record a new attempt. Enter its `Heartbeat` next.

    Attempts without results do not bind the next one: with other settings, it restarts the run. If an
    attempt on another machine shows no heartbeat for `lease.LEASE_S`, this one takes over.

    Args:
        config: the configuration, saved resolved, and compared with the recorded one.
        inputs: the current data and model, saved, and compared with the recorded ones.
        force: resume even if something has changed; new values replace the recorded ones.
        bound: changes since the last attempt that cannot be forced (see `resuming.refuse_changes`).
        say: called with messages about a restart, or about the heartbeat being watched.

    Raises:
        ConfigError: configuration or inputs have changed (with the differences), or the run is running.
    """
    run = RunFolder(path)
    attempts = run.attempts()
    if attempts:
        _refuse_running(attempts[-1], path, say, observer)
    resuming.refuse_changes(run, config, inputs, force=force, bound=bound)
    number = _claim(run, attempts[-1].number if attempts else 0, observer)
    attempt = Attempt(
        number=number,
        pid=os.getpid(),
        pid_ticks=lease.start_ticks(os.getpid()) or 0,
        host=socket.gethostname(),
        machine=lease.machine(),
        started=time.time(),
        log_dir=run.log_dir(number),
    )
    _write_attempt(run, attempt)  # before anything slow: another process waits for it only so long
    try:
        if anew := _starts_anew(run, attempts, config, inputs):
            say(
                f"{path}: the last attempt {_how(attempts[-1])} without results; restarting ({anew})"
            )
            resuming.forget(run)
            shutil.rmtree(path / "patches", ignore_errors=True)
        for folder in (path, run.checkpoints, run.traces):
            folder.mkdir(parents=True, exist_ok=True)
        if anew or not run.run_json.exists():
            origin = provenance.collect(recipe, command, seeds=provenance.seeds(config))
            write_json(run.run_json, origin | {"inputs": inputs})
            provenance.write_patches(path / "patches")
        elif run.inputs() != inputs:
            write_json(run.run_json, run.provenance() | {"inputs": inputs})
        write_text(run.config, resuming.comparable(config))
        run.summary.unlink(missing_ok=True)
    except BaseException as error:
        end_attempt(path, attempt, error)
        raise
    return attempt


def _refuse_running(
    last: Attempt, path: Path, say: Callable[[str], None], observer: lease.Observer
) -> None:
    """Refuse to start while an attempt runs; on another machine, watch its heartbeat.

    Raises:
        ConfigError: the attempt runs, or its state cannot be determined.
    """
    if last.exit_code is not None or (last.is_here and not last.is_process):
        return
    who = f"coding.run_dir={path}: the run is running (process {last.pid} on {last.host}"
    if last.is_here:
        raise ConfigError(f"{who}); choose another folder")
    say(
        f"{path}: attempt {last.number} on {last.host} has not ended; watching its heartbeat for "
        f"{lease.LEASE_S:.0f} s, and taking over if there is none"
    )
    pulse = observer.watch(last.log_dir)
    if pulse is lease.Pulse.beating:
        age = observer.age_s(last.log_dir)
        raise ConfigError(
            f"{who}, its last heartbeat {age:.0f} s ago); end it there, or choose another folder"
        )
    say(f"{path}: attempt {last.number} on {last.host} is dead: taking over")


def _claim(run: RunFolder, last: int, observer: lease.Observer) -> int:
    """Create the log folder of the next attempt; of several processes on any machines, one succeeds.

    Args:
        last: the number of the last attempt, which has ended.

    Raises:
        ConfigError: another process was faster.
    """
    number = last + 1
    run.log_dir(number).parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            run.log_dir(number).mkdir()
            break
        except FileExistsError:
            observer.sleep(lease.BEAT_S)
        if (run.log_dir(number) / ATTEMPT).exists():
            raise ConfigError(
                f"coding.run_dir={run.path}: another process has just started attempt {number} of "
                "the run; choose another folder"
            )
        number += 1  # that process was killed before it recorded its attempt
    lease.beat(run.log_dir(number), 0)
    return number


def end_attempt(path: Path, attempt: Attempt, error: BaseException | None = None) -> None:
    """Record how an attempt ended; ignore write errors, so that a full disk does not hide the cause."""
    if error is None:
        code, reason = 0, None
    elif isinstance(error, KeyboardInterrupt):
        code, reason = INTERRUPTED, None
    else:
        code = getattr(error, "exit_code", 1)
        reason = redacted(" ".join(str(error).split())) or type(error).__name__
    ended = replace(attempt, ended=time.time(), exit_code=code, error=reason)
    with contextlib.suppress(OSError):
        _write_attempt(RunFolder(path), ended)


def _starts_anew(
    run: RunFolder, attempts: Sequence[Attempt], config: DictConfig, inputs: Inputs
) -> str:
    """Return the changes since attempts without results; empty if the run resumes."""
    if not attempts or not run.run_json.exists() or resuming.has_made_something(run):
        return ""
    settings = (
        resuming.settings_changed(run.config.read_text(), config) if run.config.exists() else []
    )
    return "; ".join([*settings, *resuming.changes(run.inputs(), inputs)])


def _how(attempt: Attempt) -> str:
    """Return a few words on how an attempt ended."""
    ways = {State.interrupted: "was interrupted", State.killed: "was killed"}
    return ways.get(attempt.state, attempt.state.value)


def _write_attempt(run: RunFolder, attempt: Attempt) -> None:
    folder = run.log_dir(attempt.number)
    folder.mkdir(parents=True, exist_ok=True)
    fields = asdict(attempt)
    del fields["log_dir"]
    write_json(folder / ATTEMPT, fields)


_SAME_S = 2.0
"""Seconds within which signals are one: `scancel` and preemption signal a job's script, which passes the
signal on, and the run itself."""


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
        (self._log_dir / STOP).touch()
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
