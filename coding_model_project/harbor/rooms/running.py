"""Processes of a room, seen from outside of it: their output, resources and time limits."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from coding_model_project.harbor.environment.output import Kept
from coding_model_project.isolation.proc_files import Waits, children, descendants, read, wall_limit

_PIPE_BYTES = 1 << 20
_SAMPLE_S = 0.05
"""Seconds between two samples of the processes' resource use."""

_TICKS, _CORES = os.sysconf("SC_CLK_TCK"), len(os.sched_getaffinity(0))
_KILL_S = 10.0
"""Wall seconds in which killed processes must be gone: on a busy machine each needs a turn to end."""

_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


class Stream(Kept):
    """A non-blocking reader of a command's output, which it keeps up to a limit."""

    def __init__(self, reader: int, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.fd = reader
        self.open = True
        with suppress(OSError):
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(reader, False)

    def drain(self) -> None:
        """Read all available output."""
        while self.open:
            try:
                chunk = os.read(self.fd, _PIPE_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                os.close(self.fd)
                self.open = False
            self.add(chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command and its descendants, including those that init has adopted.

    Without a command, it is all processes that the commands of a room have left behind.
    """

    proc: int
    """Descriptor of the host's /proc."""
    init: int
    max_bytes: int
    """Limit on the memory of all processes of the room."""
    max_processes: int
    pid: int | None = None
    before: Container[int] = ()
    """Processes that were in the room before it started."""

    def lives(self) -> bool:
        return bool(children(self.proc, self.init))

    def processes(self) -> list[int]:
        own = [] if self.pid is None else [self.pid, *descendants(self.proc, self.pid)]
        adopted = [pid for pid in children(self.proc, self.init) if pid not in self.before]
        for pid in adopted:
            own += [pid, *descendants(self.proc, pid)]
        return [pid for pid in own if not _is_dead(self.proc, pid)]

    def kill(self) -> None:
        """Kill all its processes.

        Raises:
            OSError: they fork faster than they can be killed.
        """
        ends = time.monotonic() + _KILL_S
        while alive := self.processes():
            if time.monotonic() > ends:
                raise OSError("a command's processes cannot be killed")
            for signal_number in (signal.SIGSTOP, signal.SIGKILL):  # stopped ones cannot fork
                for pid in alive:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal_number)
            time.sleep(0.001)

    def delayed_s(self, waits: Waits) -> float:
        """Return how long its processes have waited for a core that they did not use themselves."""
        processes = self.processes()
        waits.look(processes)
        used = 0
        for pid in processes:
            with suppress(OSError, IndexError):
                fields = read(self.proc, f"{pid}/stat").rpartition(")")[2].split()
                used += sum(map(int, fields[11:15]))
        return max(0.0, waits.seconds - used / _TICKS / _CORES)

    def beyond(self) -> str | None:
        """Return the limit that the room's processes exceed: "memory", "processes"; None if none."""
        n_bytes = 0
        roots = [self.init] if self.pid is None else [self.init, self.pid]
        pids = [p for root in roots for p in (root, *descendants(self.proc, root))]
        if len(pids) > self.max_processes:
            return "processes"
        for pid in pids:
            with suppress(OSError, ValueError):
                for line in read(self.proc, f"{pid}/status").splitlines():
                    if line.startswith(_COUNTED):
                        n_bytes += int(line.split()[1]) << 10
        return "memory" if n_bytes > self.max_bytes else None


@dataclass(slots=True, kw_only=True)
class Running:
    """A command that runs."""

    job: Job
    streams: Sequence[Stream]
    """Its standard output and error."""
    report: int
    """A pipe from which to read why it could not be started; nothing if it could."""
    wall_s: float
    """Its time limit, extended by the time that its processes waited for a core that others used."""
    started: float = field(default_factory=time.monotonic)
    pidfd: int = field(init=False)
    _waits: Waits = field(init=False)
    _sample_at: float = field(init=False)
    _delayed_s: float = 0.0

    def __post_init__(self) -> None:
        assert self.job.pid is not None
        self.pidfd = os.pidfd_open(self.job.pid)
        self._waits, self._sample_at = Waits(self.job.proc), self.started + _SAMPLE_S

    def wait_s(self) -> float:
        """Return the seconds until its limits have to be looked at."""
        now = time.monotonic()
        left_s = self.started + self.wall_s - now
        return max(0.0, min(self._sample_at - now, left_s if left_s > 0 else _SAMPLE_S))

    def beyond(self) -> str | None:
        """Return the limit that it exceeds: "timeout", "starved", "memory", "processes"; None if none."""
        now = time.monotonic()
        if now >= self._sample_at:
            self._delayed_s = self.job.delayed_s(self._waits)
            self._sample_at = now + _SAMPLE_S
            if found := self.job.beyond():
                return found
        limit = wall_limit(now - self.started, self.wall_s, self._delayed_s)
        return "timeout" if limit == "wall" else limit

    def ended(self) -> tuple[int, str]:
        """Return its status, of `os.wait`, and its report, once its process has ended."""
        assert self.job.pid is not None
        _, status = os.waitpid(self.job.pid, 0)
        os.close(self.pidfd)
        try:
            return status, os.read(self.report, 4000).decode("utf-8", "replace")
        finally:
            os.close(self.report)


def _is_dead(proc: int, pid: int) -> bool:
    with suppress(OSError, IndexError):
        return read(proc, f"{pid}/stat").rpartition(")")[2].split()[0] in "ZX"
    return True
