"""The process of a command in a room: it drops all rights and becomes a shell."""

from __future__ import annotations

import errno
import math
import os
import pwd
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from coding_model_project.harbor.rooms.running import Job, Running, Stream
from coding_model_project.isolation import linux
from coding_model_project.isolation.proc_files import descendants

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
    processes: int


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
        _become(shell, command, writers)
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


def _become(shell: Shell, command: Command, writers: tuple[int, ...]) -> NoReturn:
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
        _limit(command)
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


def _limit(command: Command) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _MAX_DESCRIPTORS,
        resource.RLIMIT_NPROC: command.processes,
    }
    for kind, value in limits.items():
        linux.limit(kind, value).make()
