"""Confined processes of tests: prepared, forked and watched."""

from __future__ import annotations

import mmap
import os
import select
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from coding_model_project.isolation import linux, proc_files
from coding_model_project.isolation.confine import (
    FIRST_KEPT,
    SCRATCH,
    Confinement,
    Limits,
    Room,
    Steps,
    steps,
)
from coding_model_project.sandbox.embedded import fork_server

_MIN_TESTS_MEMORY_MB = 512
"""Least memory limit of the trusted tests, which need not fit a program's tight limit."""

_EVERY_S = 0.05
"""Wall seconds between two looks at a process's threads."""

_KEPT_CPU_S = 7 * 24 * 3600.0
"""The kernel's limit for kept processes, for all their inputs; a clock outside limits each of them."""

_ENDS_WITHIN_S = 0.2
"""Wall seconds for the kernel to end a process that has closed its files."""

PROGRAM, TESTS = 0, 1
"""Indices in `Compiled.confined`."""


class Ready(NamedTuple):
    """Everything prepared for a program before its source is known; the zygote caches its parts."""

    confinement: Confinement
    limits: Limits
    program: Steps
    callee: Steps
    tests: Steps
    served: fork_server.Plan | None
    """The compiled loop's plan, for a program without files; None without that loop."""


def ready(
    confinement: Confinement, limits: Limits, room: Room, served: fork_server.Plan | None
) -> Ready:
    """Return the steps for each kind of process that a program may need."""
    kept = limits._replace(cpu_s=_KEPT_CPU_S)
    roomy = kept._replace(memory_mb=max(limits.memory_mb, _MIN_TESTS_MEMORY_MB))
    return Ready(
        served=served,
        confinement=confinement,
        limits=limits,
        program=steps(confinement, limits, 4, room),
        callee=steps(confinement, kept, 5, room),
        tests=steps(confinement, roomy, 7, room),
    )


class Compiled(NamedTuple):
    """P's knowledge of its program."""

    code: types.CodeType
    files: dict[str, bytes]
    ready: Ready
    confined: mmap.mmap
    """Bytes shared with T and A, which each set theirs and unmap it before anything of an input runs."""


# ── processes ─────────────────────────────────────────────────────────────────────────────────────


def fork(
    compiled: Compiled,
    steps: Steps,
    descriptors: Sequence[int],
    index: int,
    body: Callable[[], NoReturn],
) -> int:
    """Start a confined process and return its id; returns in this process only."""
    compiled.confined[index] = 0
    reseed()
    place(descriptors)
    pid = linux.fork(compiled.ready.confinement.namespaces)
    if pid == 0:
        confined(compiled, steps, index, body)
    unplace(descriptors)
    return pid


def reseed() -> None:
    """Seed the random generators, in the parent at no cost to tests; else all draw the same numbers."""
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()


def place(descriptors: Sequence[int]) -> None:
    """Duplicate descriptors to the numbers that the next forked process expects (`confine.steps`)."""
    for i, descriptor in enumerate(descriptors):
        os.dup2(descriptor, FIRST_KEPT + i)


def unplace(descriptors: Sequence[int]) -> None:
    os.closerange(FIRST_KEPT, FIRST_KEPT + len(descriptors))


def confined(
    compiled: Compiled, steps: Steps, index: int, body: Callable[[], NoReturn]
) -> NoReturn:
    """Confine this process, record that, and run the body."""
    try:
        steps.take(compiled.files)
        if compiled.files and index == PROGRAM:  # never what the trusted tests import
            sys.path.insert(0, SCRATCH)
        compiled.confined[index] = 1
        compiled.confined.close()
    except BaseException:  # noqa: BLE001 - not confined for any reason: never run the program
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    body()


def links(proc: int | None, path: str) -> int:
    """Return the links of `PID/task`, which has one for each thread; 0 if it cannot be read."""
    if proc is None:
        return 0
    with suppress(OSError):
        return os.stat(path, dir_fd=proc).st_nlink
    return 0


class Clock:
    """CPU time of processes, from their start or from the last `restart`."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = pids
        self._before = dict.fromkeys(pids, 0.0)
        self._waited_before_s: float | None = 0.0

    def restart(self) -> None:
        """Count from now on."""
        for pid in self.pids:
            self._before[pid] += self.spent_s(pid)
        self._waited_before_s = None

    def spent_s(self, pid: int) -> float:
        """Return the CPU seconds of one process; 0 if it is gone."""
        with suppress(OSError):  # see clock_getcpuclockid(3)
            return time.clock_gettime((~pid << 3) | 2) - self._before[pid]
        return 0.0

    @property
    def longest_s(self) -> float:
        """Most CPU seconds of one of the processes."""
        return max(map(self.spent_s, self.pids))

    def count_waits(self, proc: int | None) -> None:
        """Count waits since a restart from now on; few inputs last until the call."""
        if self._waited_before_s is None:
            self._waited_before_s = proc_files.delay_s(proc, self.pids)

    def waited_s(self, proc: int | None) -> float:
        """Return how long one of the processes has waited for a core."""
        return proc_files.delay_s(proc, self.pids) - (self._waited_before_s or 0.0)


class Watch:
    """A watcher of a process that kills it at a limit, and does not reap it.

    Args:
        pid: the process's id.
        proc: a descriptor of /proc, if threads and their waits can be counted.
    """

    def __init__(self, pid: int, proc: int | None) -> None:
        self._pid, self._proc = pid, proc
        self._end = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._end, select.POLLIN)

    def wait(
        self,
        clock: Clock,
        started: float,
        *,
        cpu_s: float,
        wall_s: float,
        until: tuple[int, int] | None = None,
    ) -> str | None:
        """Wait until the process ends, or a descriptor is ready.

        Args:
            clock: the processes whose CPU time and threads are limited.
            started: start of the wall time, on the monotonic clock.
            until: the descriptor, and the `poll` events that make it ready.

        Returns:
            The limit for which it was killed: "cpu", "wall", "starved" (`proc_files.wall_limit`),
            "threads", or None.
        """
        if until is not None:
            self._poll.register(*until)
        killed = None
        while killed is None:
            cpu_left_s = cpu_s - clock.longest_s
            wall_left_s = wall_s - (time.monotonic() - started)
            if cpu_left_s <= 0:
                killed = "cpu"
            elif wall_left_s <= 0:
                waited_s = clock.waited_s(self._proc)
                killed = proc_files.wall_limit(wall_s - wall_left_s, wall_s, waited_s)
            if killed:
                break
            longest_s = min(wall_left_s if wall_left_s > 0 else 1, max(cpu_left_s, 0.002), _EVERY_S)
            if self._poll.poll(1 + int(1000 * longest_s)):
                break
            clock.count_waits(self._proc)
            if has_too_many_threads(clock.pids, self._proc):
                killed = "threads"
        if until is not None:
            self._poll.unregister(until[0])
        if killed:
            os.kill(self._pid, signal.SIGKILL)
        return killed

    def close(self) -> None:
        os.close(self._end)


def watch(pid: int, clock: Clock, limits: Limits, proc: int | None, started: float) -> str | None:
    """Wait until a process ends, as `Watch.wait` does."""
    watched = Watch(pid, proc)
    killed = watched.wait(clock, started, cpu_s=limits.cpu_s, wall_s=limits.wall_s)
    watched.close()
    return killed


def has_too_many_threads(pids: Sequence[int], proc: int | None) -> bool:
    """Return whether one of the processes has more than `fork_server.MAX_THREADS` threads."""
    return any(links(proc, f"{pid}/task") > fork_server.MAX_THREADS for pid in pids)


def await_end(pid: int) -> None:
    """Wait until a child that is expected to end has ended, or for a moment."""
    end = os.pidfd_open(pid)
    select.select([end], [], [], _ENDS_WITHIN_S)
    os.close(end)


def lives(pid: int) -> bool:
    """Return whether a child has not ended."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
