"""Supervision of a command's processes: their output, resources and time limit."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass

from coding_model_project.harbor.rooms.streams import Stream
from coding_model_project.harbor.rooms.witness import Witness
from coding_model_project.sandbox.embedded import frames

_SAMPLE_S = 0.05
"""Seconds between two samples of the processes' resource use."""

_KILL_ROUNDS = 200
_COUNTED = ("RssAnon:", "RssShmem:")


@dataclass(frozen=True, slots=True)
class Job:
    """A command and its descendants, including those that init has adopted."""

    proc: int
    init: int
    pid: int
    before: set[int]
    """Processes that were in the room before it started."""

    def processes(self) -> list[int]:
        own = [self.pid, *descendants(self.proc, self.pid)]
        adopted = [pid for pid in _children(self.proc, self.init) if pid not in self.before]
        for pid in adopted:
            own += [pid, *descendants(self.proc, pid)]
        return [pid for pid in own if not _is_dead(self.proc, pid)]

    def kill(self) -> None:
        """Kill all its processes.

        Raises:
            OSError: they fork faster than they can be killed.
        """
        for _ in range(_KILL_ROUNDS):
            alive = self.processes()
            if not alive:
                return
            for signal_number in (signal.SIGSTOP, signal.SIGKILL):  # stopped ones cannot fork
                for pid in alive:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal_number)
            time.sleep(0.001)
        raise OSError("a command's processes cannot be killed")


def watch(
    job: Job,
    streams: list[Stream],
    channel: socket.socket,
    timeout_s: float | None,
    memory_mb: int,
    max_processes: int,
    witness: Witness | None = None,
) -> str | None:
    """Read a command's output until it ends, or kill it with its descendants.

    Returns:
        The reason for killing it; None if it ended by itself.
    """
    deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    pidfd = os.pidfd_open(job.pid)
    poll = select.poll()
    for fd in (pidfd, channel.fileno(), *(stream.fd for stream in streams)):
        poll.register(fd, select.POLLIN)
    if witness is not None:
        poll.register(witness.fd, select.POLLIN)
    sample_at = time.monotonic() + _SAMPLE_S
    killed = None
    try:
        while killed is None:
            now = time.monotonic()
            if now >= deadline:
                killed = "timeout"
                break
            if now >= sample_at:
                killed = _beyond(job, memory_mb << 20, max_processes)
                if killed:
                    break
                sample_at = now + _SAMPLE_S
            ready = {fd for fd, _ in poll.poll(1 + 1000 * (min(deadline, sample_at) - now))}
            for stream in streams:
                if stream.fd in ready and stream.open:
                    stream.drain()
                    if not stream.open:
                        poll.unregister(stream.fd)
            if witness is not None and witness.fd in ready:
                witness.handle()
            if channel.fileno() in ready:
                frames.receive(channel)  # any request during a command is an interrupt
                killed = "interrupted"
            if pidfd in ready:
                return None
        job.kill()
        return killed
    finally:
        os.close(pidfd)


def _children(proc: int, pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        try:
            for thread in os.listdir(fd):
                with suppress(OSError):
                    found += map(int, _read(fd, f"{thread}/children").split())
        finally:
            os.close(fd)
    return found


def descendants(proc: int, pid: int) -> list[int]:
    found: list[int] = []
    pending = [pid]
    while pending:
        children = _children(proc, pending.pop())
        found += children
        pending += children
    return found


def _is_dead(proc: int, pid: int) -> bool:
    with suppress(OSError, IndexError):
        return _read(proc, f"{pid}/stat").rpartition(")")[2].split()[0] in "ZX"
    return True


def _beyond(job: Job, max_bytes: int, max_processes: int) -> str | None:
    """Return the limit that the room's processes exceed: "memory", "processes"; None if none."""
    n_bytes = 0
    pids = [p for root in (job.init, job.pid) for p in (root, *descendants(job.proc, root))]
    if len(pids) > max_processes:
        return "processes"
    for pid in pids:
        with suppress(OSError, ValueError):
            for line in _read(job.proc, f"{pid}/status").splitlines():
                if line.startswith(_COUNTED):
                    n_bytes += int(line.split()[1]) << 10
    return "memory" if n_bytes > max_bytes else None


def _read(proc: int, path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(fd, 1 << 16).decode("ascii", "replace")
    finally:
        os.close(fd)
