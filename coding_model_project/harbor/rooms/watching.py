"""Supervision of a command's processes: their output, resources and time limit."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass

from coding_model_project.harbor.rooms.streams import Stream
from coding_model_project.isolation.proc_files import Waits, children, descendants, read, wall_limit
from coding_model_project.sandbox.embedded import frames

_SAMPLE_S = 0.05
"""Seconds between two samples of the processes' resource use."""

_TICKS, _CORES = os.sysconf("SC_CLK_TCK"), len(os.sched_getaffinity(0))
_KILL_S = 10.0
"""Wall seconds in which killed processes must be gone: on a busy machine each needs a turn to end."""

_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


@dataclass(frozen=True, slots=True)
class Job:
    """A command and its descendants, including those that init has adopted.

    Without a command, it is all processes that the commands of a room have left behind.
    """

    proc: int
    init: int
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

    def beyond(self, max_bytes: int, max_processes: int) -> str | None:
        """Return the limit that the room's processes exceed: "memory", "processes"; None if none."""
        n_bytes = 0
        roots = [self.init] if self.pid is None else [self.init, self.pid]
        pids = [p for root in roots for p in (root, *descendants(self.proc, root))]
        if len(pids) > max_processes:
            return "processes"
        for pid in pids:
            with suppress(OSError, ValueError):
                for line in read(self.proc, f"{pid}/status").splitlines():
                    if line.startswith(_COUNTED):
                        n_bytes += int(line.split()[1]) << 10
        return "memory" if n_bytes > max_bytes else None


def watch(
    job: Job,
    streams: list[Stream],
    channel: socket.socket,
    timeout_s: float | None,
    memory_mb: int,
    max_processes: int,
) -> str | None:
    """Read a command's output until it ends, or kill it with its descendants.

    Args:
        timeout_s: extended by the time that its processes waited for a core that others used.

    Returns:
        The reason for killing it; None if it ended by itself.
    """
    started = time.monotonic()
    wall_s = float("inf") if timeout_s is None else timeout_s
    waits, delayed_s = Waits(job.proc), 0.0
    assert job.pid is not None
    pidfd = os.pidfd_open(job.pid)
    poll = select.poll()
    for fd in (pidfd, channel.fileno(), *(stream.fd for stream in streams)):
        poll.register(fd, select.POLLIN)
    sample_at = time.monotonic() + _SAMPLE_S
    killed = None
    try:
        while killed is None:
            now = time.monotonic()
            if now >= sample_at:
                delayed_s = job.delayed_s(waits)
                if killed := job.beyond(memory_mb << 20, max_processes):
                    break
                sample_at = now + _SAMPLE_S
            if limit := wall_limit(now - started, wall_s, delayed_s):
                killed = "timeout" if limit == "wall" else limit
                break
            left_s = started + wall_s - now
            wait_s = min(sample_at - now, left_s if left_s > 0 else _SAMPLE_S)
            ready = {fd for fd, _ in poll.poll(1 + 1000 * wait_s)}
            for stream in streams:
                if stream.fd in ready and stream.open:
                    stream.drain()
                    if not stream.open:
                        poll.unregister(stream.fd)
            if channel.fileno() in ready:
                frames.receive(channel)  # any request during a command is an interrupt
                killed = "interrupted"
            if pidfd in ready:
                return None
        job.kill()
        return killed
    finally:
        os.close(pidfd)


def _is_dead(proc: int, pid: int) -> bool:
    with suppress(OSError, IndexError):
        return read(proc, f"{pid}/stat").rpartition(")")[2].split()[0] in "ZX"
    return True
