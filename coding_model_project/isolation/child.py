"""Child processes that end with this one and get a terminal's Ctrl-C once, from this process."""

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

from coding_model_project.isolation.linux import end_with, memory_file

_PACKAGE_ROOT = Path(__file__).parents[2]
_INHERITED = ("LD_LIBRARY_PATH", "CODING_RUN_TOKEN")
"""Environment variables that the interpreter needs, or by which a run finds its processes."""

_START_S = 60.0
_GRACE_S = 2.0
"""Wall seconds for a helper to notice that its channel is closed, and to end."""


def start_child(
    command: Sequence[str],
    *,
    log: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in its own session; it does not outlive this process.

    Args:
        log: receives its output and errors, and it gets no input; None inherits this process's streams.
        environment: replaces this process's environment.
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
    """Interrupt the process, as Ctrl-C does, if the context raises, and wait for its end."""
    try:
        yield process
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def await_end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Wait for a terminating process; after `grace_s` seconds, kill it and its process group."""
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper:
    """A trusted module of this package running as a child process, and a channel to it."""

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

        An exception in the context ends the helper. Once it has called `linux.end_with` itself, it dies
        at the latest with the thread that started it. Unlike `start_child`, this runs no Python in a
        fork of a process that may have many threads.

        Args:
            environment: variables beyond those of every helper.

        Raises:
            ChildProcessError: it did not start, or sent no message in time; with the last line of its
                standard error.
        """
        flags = ("-s", "-P", "-m")
        own = {"PYTHONPATH": str(_PACKAGE_ROOT), "PYTHONUTF8": "1", "LANG": "C.UTF-8"}
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.settimeout(_START_S)
        helper = None
        with theirs, open(memory_file("helper-stderr"), "rb") as errors:
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
                lines = errors.read().decode(errors="replace").strip().splitlines()
                raise ChildProcessError(lines[-1] if lines else str(error)) from error

    def stop(self) -> None:
        """Close the channel, which ends the helper, and wait; kill it if it hangs. Idempotent."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)  # a fork of this process may also hold it open
        self.channel.close()
        await_end(self.process, _GRACE_S)
