"""A command in a room: its process, which becomes a shell, and what the steward sees and limits of it."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import pwd
import resource
import signal
import time
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from coding_model_project.harbor.environment.tree import Kept
from coding_model_project.isolation import linux
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


_SHELLS = ("/bin/bash", "/bin/sh")
_MAX_DESCRIPTORS = 16384
_PR_SET_SECUREBITS, _NOROOT_LOCKED = 28, 3

CANNOT_START = 126
"""Exit code of a command whose working directory or user does not exist, as in container engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The keeper's settings for all commands of all rooms."""

    filter: linux.Filter
    proc: int
    """Descriptor of the host's /proc; commands never get it."""
    own_proc: bool
    """True if a room may mount its own /proc."""
    bounds_processes: bool
    """True if the kernel can limit a room's processes (`launch.bound_processes`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command to run."""

    text: str
    cwd: str
    env: dict[str, str]
    timeout_s: float | None
    user: str | int | None
    max_output: int
    """Maximum bytes kept of each stream: half from its beginning, half from its end."""


def start(shell: Shell, command: Command, of_room: Job, *, nice: int) -> Running:
    """Start a command in a room's PID namespace.

    Args:
        of_room: all processes of the room.
        nice: added to its niceness.
    """
    before = set(descendants(shell.proc, of_room.init))
    readers, writers = zip(*(os.pipe() for _ in range(3)), strict=True)
    pid = os.fork()
    if pid == 0:
        os.nice(nice)
        _become(shell, command, writers, of_room.max_processes)
    for writer in writers:
        os.close(writer)
    out, err, report = readers
    return Running(
        job=replace(of_room, pid=pid, before=before),
        streams=[Stream(reader, command.max_output) for reader in (out, err)],
        report=report,
        wall_s=math.inf if command.timeout_s is None else command.timeout_s,
    )


# ── the command's process ─────────────────────────────────────────────────────────────────────────


class _Refused(Exception):
    """A command that cannot run, by its own fault."""


def _become(
    shell: Shell, command: Command, writers: tuple[int, ...], max_processes: int
) -> NoReturn:
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        for fd, number in zip((null, *writers), (200, 201, 202, 203), strict=True):
            os.dup2(fd, number)
        for number in range(3):
            os.dup2(200 + number, number)
        os.dup2(203, 3, inheritable=False)
        os.setsid()
        linux.own_proc_entries()
        _write(shell.proc, "self/oom_score_adj", "1000")  # the kernel kills it first
        uid, gid, home = _identity(command.user)
        if uid:
            _take_identity(shell.proc, uid, gid)
        linux.hide_memory()  # from the room's processes, until this becomes one of them
        linux.close_from(4).make()
        try:
            os.chdir(command.cwd)
        except OSError as error:
            raise _Refused(f"cannot change to {command.cwd}: {error.strerror}") from error
        _limit(max_processes)
        linux.call("prctl", _PR_SET_SECUREBITS, _NOROOT_LOCKED, 0, 0, 0)
        linux.drop_capabilities().make()
        linux.no_new_privileges().make()
        for kind in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
            signal.signal(kind, signal.SIG_DFL)
        shell.filter.install()
        env = {"HOME": home, **command.env}
        for path in _SHELLS:
            try:
                os.execve(path, [os.path.basename(path), "-c", command.text], env)
            except FileNotFoundError:
                continue
            except (ValueError, OSError) as error:  # it is too long, or contains a null byte
                if isinstance(error, OSError) and error.errno != errno.E2BIG:
                    raise
                why = getattr(error, "strerror", None) or error
                raise _Refused(f"the command cannot be run: {why}") from error
        raise _Refused("the root has neither /bin/bash nor /bin/sh")
    except _Refused as error:
        os.write(3, f"refused:{error}".encode())
    except BaseException as error:  # noqa: BLE001 - sent to the steward through a pipe
        with suppress(OSError):
            os.write(3, f"failed:{type(error).__name__}: {error}".encode())
    finally:
        os._exit(CANNOT_START)


def _identity(user: str | int | None) -> tuple[int, int, str]:
    """Return the ids of a user and its group, and its home, by the room's own /etc/passwd."""
    name, _, group = str(user if user is not None else 0).partition(":")
    try:
        known = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        uid, gid, home = known.pw_uid, known.pw_gid, known.pw_dir
    except KeyError as error:
        if not name.isdigit():
            raise _Refused(f"unable to find user {name}: not in /etc/passwd") from error
        uid = gid = int(name)
        home = "/"
    return uid, int(group) if group.isdigit() else gid, home


def _take_identity(proc: int, uid: int, gid: int) -> None:
    """Take on another user's ids. To the kernel it stays the same user, who owns the whole room."""
    linux.unshare(linux.CLONE_NEWUSER)
    _write(proc, "self/setgroups", "deny")
    _write(proc, "self/uid_map", f"{uid} 0 1")
    _write(proc, "self/gid_map", f"{gid} 0 1")


def _write(proc: int, path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    os.write(fd, text.encode())
    os.close(fd)


def _limit(max_processes: int) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _MAX_DESCRIPTORS,
        resource.RLIMIT_NPROC: max_processes,
    }
    for kind, value in limits.items():
        linux.limit(kind, value).make()
