"""Facts about other processes, read from /proc, mostly below a descriptor of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

MOST_WAITS = 4
"""The wall limits by which waiting for a core extends a process's wall limit at most: with its own, it
ends after five times the limit. A program cannot make itself wait for longer than its CPU limit."""

TICK_S = 0.01
"""The longest tick of Linux's clock on the machines that are supported (CONFIG_HZ=100)."""


def oom_kills() -> int:
    """Return the number of processes that the kernel has killed for lack of memory since it started.

    It counts every group of this machine, by versions 1 and 2. It is 0 if the kernel does not count.
    """
    with suppress(OSError), open("/proc/vmstat", "rb", 0) as file:
        found = file.read(1 << 16).partition(b"\noom_kill ")[2]
        return int(found.partition(b"\n")[0] or 0)
    return 0


def read(proc: int, path: str) -> str:
    """Return a file's content; raise OSError if the process is gone."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(fd, 1 << 16).decode("ascii", "replace")
    finally:
        os.close(fd)


def _of_threads(proc: int, pid: int, name: str) -> Iterable[str]:
    """Yield a file of each thread of a process; nothing if it is gone."""
    with suppress(OSError):
        folder = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        try:
            for thread in os.listdir(folder):  # noqa: PTH208 - no pathlib with a descriptor
                with suppress(OSError):
                    yield read(folder, f"{thread}/{name}")
        finally:
            os.close(folder)


def children(proc: int, pid: int) -> list[int]:
    return [int(child) for found in _of_threads(proc, pid, "children") for child in found.split()]


def descendants(proc: int, pid: int) -> list[int]:
    found: list[int] = []
    pending = [pid]
    while pending:
        below = children(proc, pending.pop())
        found += below
        pending += below
    return found


class Waits:
    """The time that the threads of changing processes were ready and waited for a core.

    Each look adds what the longest wait has grown by. The sum over threads would let a program delay its
    own end; this way it waits for no longer than its own threads use a core.

    Args:
        proc: a descriptor of /proc; None counts nothing.
    """

    def __init__(self, proc: int | None) -> None:
        self._proc = proc
        self._longest_s = 0.0
        self.seconds = 0.0

    def look(self, pids: Iterable[int]) -> None:
        longest_s = delay_s(self._proc, pids)
        self.seconds += max(0.0, longest_s - self._longest_s)
        self._longest_s = longest_s


def delay_s(proc: int | None, pids: Iterable[int]) -> float:
    """Return the longest time that a living thread of the processes was ready and waited for a core."""
    if proc is None:
        return 0.0
    delays = (
        int(found.split()[1]) for pid in pids for found in _of_threads(proc, pid, "schedstat")
    )
    return max(delays, default=0) * 1e-9


def longest_s(wall_s: float) -> float:
    """Return the wall seconds within which a process with this limit ends on any machine."""
    return (1 + MOST_WAITS) * wall_s


def wall_limit(elapsed_s: float, wall_s: float, delayed_s: float) -> str | None:
    """Return the limit that ends a process: "wall"; "starved" if it only waited for a core; or None.

    Args:
        elapsed_s: wall seconds since its start.
        delayed_s: those of them that it waited for a core.
    """
    if elapsed_s - min(delayed_s, MOST_WAITS * wall_s) < wall_s:
        return None
    # Within a tick of the kernel's clock no process gets anything done, however idle the machine.
    return "wall" if elapsed_s - delayed_s >= wall_s or wall_s < TICK_S else "starved"
