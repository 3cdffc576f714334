"""A script that runs a command and ends it with all processes that it started, however they hide.

    python -I -S tether.py PARENT_PID GRACE_S COMMAND…

It is a subreaper: orphans become its children, so nothing is left once it has no children. It ends all
of them when the command ends, and on SIGTERM, which it also gets when its parent dies: the command's
group gets SIGTERM first, and everything SIGKILL after `GRACE_S` seconds. Its exit code is the command's,
or 128 plus a signal's number.

It is a separate file that starts in milliseconds: a fork of a process with many threads must run no
Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CANNOT_START = 127
_POLL_S = 0.01
_STAT_PARENT = 1
"""Index of the parent's id in proc_pid_stat(5), counted after the command's name."""


def tethered(command: list[str], *, grace_s: float) -> list[str]:
    """Return the words that run a command tethered to this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(grace_s), *command]


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _become(command: list[str], parent: int) -> None:
    """Execute the command in its own session; never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for kind in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
            signal.signal(kind, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_START)


def _children() -> list[int]:
    own, found = os.getpid(), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes as long as all the rest to start
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
                if int(fields[_STAT_PARENT]) == own:
                    found.append(int(name))
    return found


def _reap() -> dict[int, int]:
    """Return the exit codes of ended children; raise ChildProcessError once there are no children."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if ended:
                return ended
            raise
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _kill_all() -> None:
    """Kill children, and orphans that become children, until there are none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            _reap()
            time.sleep(_POLL_S)


def main() -> None:
    parent, grace_s, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    signals = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, own)
    code: int | None = None
    deadline: float | None = None
    while code is None:
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            break
        got = signal.sigtimedwait(signals, 3600 if left_s is None else left_s)
        if got is not None and got.si_signo == signal.SIGTERM and deadline is None:
            deadline = time.monotonic() + grace_s
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            code = _reap().get(pid)
    _kill_all()
    sys.exit(128 + signal.SIGKILL if code is None else code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
