"""The heartbeat of an attempt, from which other machines detect whether it still runs.

While an attempt runs, its process overwrites the file `heartbeat` in its log folder every 10 s. Another
machine that shares the folder considers the attempt dead once the file has not changed for 90 s of its
own clock. It may then take over the run. Times of two machines are never compared, so clocks may differ.
The file is overwritten in place, which works on a full disk, and reopened for each look, which makes an
NFS client ask the server.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from pathlib import Path
from types import TracebackType

from coding_model_project.errors import StorageError, TrainingError

HEARTBEAT = "heartbeat"
BEAT_S = 10.0
STALE_S = 60.0
"""Seconds for which an NFS client may show old listings or attributes (options acdirmax, acregmax)."""
LEASE_S = STALE_S + 3 * BEAT_S
_CLOCKS_DIFFER_S = 3600.0
_CHANGES_OF_A_LIVE_ONE = 2
"""Number of changes that prove a live attempt: one may only be an expired cache with an old beat."""


@cache
def machine() -> str:
    """Return an identifier of the running kernel and process namespace, in which a pid is unique.

    Host names do not suffice: containers share them, and a host keeps its name after a reboot.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def start_ticks(pid: int) -> int | None:
    """Return the start of a local process in clock ticks since boot; None if it is gone.

    Unlike a time of day, it does not change when the clock is set.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(rest[18])


def beat(log_dir: Path, count: int) -> None:
    """Overwrite the heartbeat of the attempt with this log folder.

    Raises:
        OSError: it could not be written.
    """
    line = f"{count:010d} {time.time():013.0f}\n".encode()
    file = os.open(log_dir / HEARTBEAT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(file, line, 0)
        os.fsync(file)
    finally:
        os.close(file)


def refresh(folder: Path) -> None:
    """Make the next listing of a folder, and the next look for a file in it, current.

    An NFS client caches both for up to a minute, unless it has changed the folder itself.
    """
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=folder, prefix=".refresh-"):
        pass


class Heartbeat:
    """A context manager that beats from a thread, and ends the run once a later attempt exists.

    After a machine was suspended or disconnected for longer than the lease, another may have taken over
    its run. The thread then interrupts the main thread, and leaving raises TrainingError with the reason.
    """

    def __init__(self, log_dir: Path, *, beat_s: float = BEAT_S) -> None:
        """Prepare the heartbeat of the attempt with this log folder."""
        self._log_dir = log_dir
        self._beat_s = beat_s
        self._stop = threading.Event()
        self._lost = False
        self._ignored = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        # A shell starts the background jobs of a script, such as `jobs` writes, with SIGINT ignored.
        self._ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if self._ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._lost:
            raise TrainingError(self._why()) from error

    def _run(self) -> None:
        count = 0
        while not self._stop.wait(self._beat_s):
            count += 1
            # The run reports a full or absent disk; here the next beat retries.
            with suppress(OSError):
                beat(self._log_dir, count)
            refresh(self._log_dir.parent)
            with suppress(OSError):
                self._lost = has_successor(self._log_dir)
            if self._lost:
                print(f"{self._why()}: ending", file=sys.stderr, flush=True)  # noqa: T201
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return

    def _why(self) -> str:
        return (
            f"{self._log_dir}: a later attempt has taken this run over, after {LEASE_S:.0f} s without a "
            "heartbeat of this one"
        )


def has_successor(log_dir: Path) -> bool:
    """Return whether an attempt was started after the one with this log folder."""
    name, _, number = log_dir.name.rpartition("_")
    return log_dir.with_name(f"{name}_{int(number) + 1}").exists()


class Pulse(Enum):
    """The observed state of an attempt on another machine."""

    unknown = auto()
    """Not watched for long enough."""
    beating = auto()
    stopped = auto()


@dataclass(slots=True)
class _Sight:
    content: bytes
    since: float
    changes: int = 0


@dataclass(slots=True)
class Observer:
    """An observer of heartbeats by its own clock."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _sights: dict[Path, _Sight] = field(default_factory=dict)

    def look(self, log_dir: Path) -> Pulse:
        """Read the heartbeat once, and return the state so far. A missing one is one that does not beat.

        Raises:
            OSError: the heartbeat cannot be read.
        """
        content = b""
        with suppress(FileNotFoundError):
            content = (log_dir / HEARTBEAT).read_bytes()
        now = self.clock()
        sight = self._sights.setdefault(log_dir, _Sight(content, now))
        if sight.content != content:
            sight.content, sight.since, sight.changes = content, now, sight.changes + 1
        if now - sight.since >= LEASE_S:
            return Pulse.stopped
        return Pulse.beating if sight.changes >= _CHANGES_OF_A_LIVE_ONE else Pulse.unknown

    def watch(self, log_dir: Path) -> Pulse:
        """Read the heartbeat until the state is known, at most for about the lease.

        Raises:
            StorageError: the heartbeat cannot be read.
        """
        try:
            while (pulse := self.look(log_dir)) is Pulse.unknown:
                self.sleep(1.0)
        except OSError as error:
            raise StorageError(
                f"{log_dir / HEARTBEAT}: cannot be read ({error.strerror}), so it is unknown whether the "
                "run is still running; make it readable"
            ) from error
        return pulse

    def age_s(self, log_dir: Path) -> float:
        """Return the seconds since the last observed beat."""
        return self.clock() - self._sights[log_dir].since

    def seems_alive(self, log_dir: Path) -> bool:
        """Guess, for display only, whether an attempt is alive: false if its beats stopped long ago."""
        try:
            pulse = self.look(log_dir)
            if pulse is not Pulse.unknown:
                return pulse is not Pulse.stopped
            written = float(self._sights[log_dir].content.split()[-1])
        except (OSError, ValueError, IndexError):  # unreachable or half written
            return True
        return time.time() - written <= LEASE_S + _CLOCKS_DIFFER_S


OBSERVER = Observer()
"""This process's observer."""
