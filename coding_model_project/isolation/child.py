"""Child processes that end with this one, and that a terminal's Ctrl-C reaches once, from here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from coding_model_project.isolation.linux import end_with

_PACKAGE_ROOT = Path(__file__).parents[2]
_INHERITED = ("LD_LIBRARY_PATH", "CODING_RUN_TOKEN")
"""Environment the interpreter needs, or by which a run finds its processes."""

_START_S = 60.0
_GRACE_S = 2.0
"""Wall seconds in which a helper notices that its channel is closed, and ends."""


def start_child(
    command: Sequence[str],
    *,
    log: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, which does not outlive this process.

    Args:
        log: gets its output and its errors, and it gets no input; None leaves it this process's.
        environment: in the place of this process's.
    """
    return subprocess.Popen(
        command,
        stdin=None if log is None else subprocess.DEVNULL,
        stdout=log,
        stderr=None if log is None else subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        preexec_fn=partial(end_with, os.getpid()),
    )


@contextmanager
def interrupting(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """An exception in the context interrupts the process, as Ctrl-C does, and waits for its end."""
    try:
        yield process
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def await_end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Wait for a process that was asked to end; after `grace_s`, kill it and its process group."""
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper:
    """A trusted module of this package that runs as a child process, and a channel to it."""

    process: subprocess.Popen[bytes]
    channel: socket.socket

    @classmethod
    @contextmanager
    def starting(
        cls,
        module: str,
        *arguments: str,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        kind: socket.SocketKind = socket.SOCK_STREAM,
    ) -> Iterator[Helper]:
        """Start `-m module HOST_PID FD *arguments`; the context receives its first message.

        An exception in the context ends it. It dies with the thread that starts it, at the latest, once
        it has called `linux.end_with` itself: unlike `start_child`, this runs no Python in a fork of a
        process that may have many threads.

        Args:
            environment: beyond what every helper gets.

        Raises:
            ChildProcessError: it did not start, or sent no message in time; with the last line of its
                standard error.
        """
        flags = ("-s", "-B", "-P", "-m")
        own = {"PYTHONPATH": str(_PACKAGE_ROOT), "PYTHONUTF8": "1", "LANG": "C.UTF-8"}
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.settimeout(_START_S)
        helper = None
        with theirs, open(os.memfd_create("helper-stderr"), "rb") as errors:
            try:
                process = subprocess.Popen(
                    [python, *flags, module, str(os.getpid()), str(theirs.fileno()), *arguments],
                    pass_fds=[theirs.fileno()],
                    env={**kept, **own, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                    cwd="/",
                )
                helper = cls(process=process, channel=ours)
                theirs.close()
                yield helper
            except BaseException as error:
                helper.stop() if helper else ours.close()
                if not isinstance(error, OSError | EOFError | ValueError | KeyError):
                    raise
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().splitlines()
                raise ChildProcessError(said[-1] if said else str(error)) from error

    def stop(self) -> None:
        """Close the channel, at whose end it ends, and wait; kill it if it hangs. May be repeated."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold it open, too
        self.channel.close()
        await_end(self.process, _GRACE_S)
