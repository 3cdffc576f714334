"""The forker of an exported task, which forks all programs and knows no test case, and its processes.

    verifier        reads the cases once the forker runs; adopts and kills processes left by programs
      └ forker      has the program's text and its own modules; never reads a program's output
          └ the processes of one test, which it waits for

The program is the last process forked for a test. The forker only waits while it runs. The program's own
process knows neither expected values nor tests. Each mode's input and output are in
`sandbox.embedded.run_program` and `sandbox.embedded.asserts`.
"""

from __future__ import annotations

import _socket
import atexit
import gc
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn

from coding_model_project.harbor.export import kernel
from coding_model_project.sandbox.embedded import asserts, run_program

PROGRAM_FILE = "solution.py"
_SYNTAX_ERROR = 1

_ENV = {"PATH": os.defpath, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
_SPARE_S, _LOOK_S = 30.0, 0.5
"""Seconds after a test's limit for the forker's answer, on a busy machine; seconds between polls."""
_INT, _BYTES, _MOST = 4, 1 << 16, 16
"""Bytes of a descriptor's number; most bytes of a message; most descriptors of a message."""
_CHANNEL, _FIRST = 3, 6
"""The forker's descriptor, and the first number that no descriptor of a test uses."""
_READY, _TIMEOUT, _NONE = b"ready", b"timeout", b"no process"
_PRELOADED = """
bisect collections copy dataclasses datetime decimal enum fractions functools heapq itertools math
operator random re statistics string typing
"""
"""Modules imported once, if the program's text seems to import them."""


class Lost(Exception):
    """An error: the forker was killed or stopped."""


class Process(NamedTuple):
    """A process of a test."""

    mode: str
    places: Sequence[int]
    """The numbers of its descriptors in the process."""


class Request(NamedTuple):
    """The processes of a test: the forker waits for the first, and the last runs the program."""

    folder: str
    cpu_s: float
    memory_mb: int
    output_kb: int
    wall_s: float
    processes: Sequence[Process]


class Job(NamedTuple):
    """The work of a process that was forked for a request."""

    request: Request
    process: Process
    descriptors: list[int]
    source: bytes
    is_nobody: bool


class Forker:
    """The forker, as the verifier controls it."""

    def __init__(self, channel: Any, pid: int, *, is_nobody: bool) -> None:
        self._channel, self._pid = channel, pid
        self._is_nobody, self._has_run = is_nobody, False

    @property
    def is_in_reach(self) -> bool:
        """Return whether a program has run as this user, who may kill or stop the forker."""
        return self._has_run and not self._is_nobody

    def run(
        self, request: Request, descriptors: Sequence[int], passed_on: Sequence[int] = ()
    ) -> int:
        """Run a test's processes.

        Args:
            passed_on: descriptors to close here once the processes have them.

        Returns:
            The exit code of the first, negative for a signal. The others are killed.

        Raises:
            TimeoutError: the first exceeded its limit and was killed.
            Lost: the forker did not answer.
            OSError: the machine has no process left.
        """
        numbers = b"".join(one.to_bytes(_INT, sys.byteorder) for one in descriptors)
        with_them = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)]
        try:
            self._channel.sendmsg([json.dumps(request).encode()], with_them)
        except OSError as error:
            raise Lost(str(error)) from error
        finally:
            _close(passed_on)
        self._has_run = True
        reply = self._receive(request.wall_s)
        if reply == _TIMEOUT:
            raise TimeoutError
        if reply == _NONE:
            raise OSError("no process can be forked")
        return int(reply)

    def _receive(self, wall_s: float) -> bytes:
        """Return the answer to a request.

        Raises:
            Lost: the forker did not answer.
        """
        ends = time.monotonic() + wall_s + _SPARE_S
        self._channel.settimeout(wall_s)
        while time.monotonic() < ends:
            try:
                if reply := self._channel.recv(_BYTES):
                    return reply
                break
            except TimeoutError:
                kernel.end_children(self._pid)
                if self._is_lost():
                    break
                self._channel.settimeout(_LOOK_S)
            except OSError:
                break
        raise Lost("it was ended or stopped")

    def _is_lost(self) -> bool:
        events = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, events) is not None

    def end_tests(self) -> None:
        """Kill all processes that programs have started.

        Raises:
            Lost: the forker itself was killed or stopped.
        """
        kernel.end_children(self._pid)
        if self._is_lost():
            raise Lost("it was ended or stopped")

    def end(self) -> None:
        """End the forker and all started processes."""
        self._channel.close()
        kernel.end_children(0)


def start(source: bytes) -> Forker | Job:
    """Start the forker. Call this before reading anything secret.

    Returns:
        The forker in this process; its job in each process that the forker forks.

    Raises:
        OSError: the forker did not start, or programs could read the tests.
    """
    is_nobody = kernel.can_be_nobody()
    if not is_nobody and kernel.landlock_abi() < 1:
        raise OSError(
            "programs could read the tests: run the verifier as root, or on a kernel with Landlock"
        )
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    if pid := os.fork():
        theirs.close()
        if ours.recv(_BYTES) != _READY:
            raise OSError("the forker did not start")
        return Forker(ours, pid, is_nobody=is_nobody)
    try:
        _forget(theirs.detach())
        channel = _socket.socket(fileno=_CHANNEL)
        kernel.watch_children()
        for name in _PRELOADED.split():
            if f"import {name}".encode() in source or f"from {name}".encode() in source:
                __import__(name)
        kernel.hide()
        gc.freeze()
        gc.enable()
        channel.send(_READY)
        request, process, descriptors = _serve(channel)
        return Job(request, process, descriptors, source, is_nobody)
    except BaseException:  # noqa: BLE001 - the forker must never run the verifier's code
        os._exit(1)


def _forget(channel: int) -> None:
    """Reset this process to a fresh interpreter's state, with the channel as its only descriptor."""
    os.dup2(channel, _CHANNEL, inheritable=False)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > _CHANNEL:
            with suppress(OSError):  # the descriptor that listed them is closed already
                os.close(int(name))
    none = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(_FIRST):
        if descriptor not in (none, _CHANNEL):
            os.dup2(none, descriptor)
    sys.stdin = sys.__stdin__ = _stream(0, "stdin", "r")
    sys.stdout = sys.__stdout__ = _stream(1, "stdout", "w")
    sys.stderr = sys.__stderr__ = _stream(2, "stderr", "w")
    os.environ.clear()
    os.environ.update(_ENV)
    sys.argv[:] = ["-c"]
    atexit._clear()


def _stream(descriptor: int, name: str, mode: str) -> Any:
    """Open a standard stream as the interpreter does with `LC_ALL=C.UTF-8`."""
    errors = "backslashreplace" if name == "stderr" else "surrogateescape"
    stream: Any = open(  # noqa: SIM115
        descriptor, mode, encoding="utf-8", errors=errors, newline="\n", closefd=False
    )
    if name == "stderr":
        stream.reconfigure(line_buffering=True)
    stream.buffer.raw.name = f"<{name}>"
    return stream


def _serve(channel: Any) -> tuple[Request, Process, list[int]]:
    """Run tests until the verifier closes the channel. Returns only in the forked processes."""
    while True:
        content, extra, _, _ = channel.recvmsg(_BYTES, _socket.CMSG_SPACE(_INT * _MOST))
        if not content:
            os._exit(0)
        *limits, processes = json.loads(content)
        request = Request(*limits, processes=[Process(*one) for one in processes])
        descriptors = _received(extra)
        pids, left, reply = list[int](), descriptors, _NONE
        with suppress(OSError):
            for process in request.processes:
                mine, left = left[: len(process.places)], left[len(process.places) :]
                if (pid := os.fork()) == 0:
                    _close(set(descriptors) - set(mine))
                    return request, process, mine
                pids.append(pid)
        _close(descriptors)
        if len(pids) == len(request.processes):
            try:
                reply = b"%d" % kernel.wait(pids[0], request.wall_s)
                del pids[0]
            except TimeoutError:
                reply = _TIMEOUT
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:  # a tracer may hold one, until the verifier kills the tracer
            os.waitpid(pid, 0)
        channel.send(reply)


def _close(descriptors: Iterable[int]) -> None:
    for one in descriptors:
        os.close(one)


def _received(extra: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors of a message."""
    numbers = b"".join(content for _, _, content in extra)
    return [
        int.from_bytes(numbers[at : at + _INT], sys.byteorder)
        for at in range(0, len(numbers), _INT)
    ]


# ── a process of one test ─────────────────────────────────────────────────────────────────────────


def prepare(job: Job) -> Callable[[], NoReturn]:
    """Confine this process, which the forker forked.

    Returns:
        A function that runs the program or its tests, and ends the process.
    """
    request, mode = job.request, job.process.mode
    is_program = mode != "tests"
    os.setsid()
    kernel.watch_children(watching=False)
    _take(job.process.places, job.descriptors)
    os.chdir(request.folder)
    if is_program:
        if job.is_nobody:
            kernel.become_nobody()
        kernel.hide(hidden=False)
    kernel.close_folders()
    if is_program:
        kernel.drop_capabilities()
        _limit(request)
    return _body(mode, job.source)


def _take(places: Sequence[int], descriptors: list[int]) -> None:
    """Move descriptors to `places`, which are smaller than their numbers, and close all others."""
    for place, descriptor in zip(places, descriptors, strict=True):
        os.dup2(descriptor, place)
    for descriptor in range(3, max(descriptors) + 1):
        if descriptor not in places:
            with suppress(OSError):
                os.close(descriptor)


def _limit(request: Request) -> None:
    seconds = math.ceil(request.cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    memory, longest = request.memory_mb << 20, (request.output_kb + 1) << 10
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest, longest))


def _body(mode: str, source: bytes) -> Callable[[], NoReturn]:
    if mode == "tests":
        asked = json.load(sys.stdin)
        sources = [source.encode() for source in asked["sources"]]
        return partial(asserts.run_all, sources, asked["entry_point"], asked["max_bytes"])
    try:
        code = compile(source, PROGRAM_FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - for people
        sys.exit(_SYNTAX_ERROR)
    if mode == "script":
        return partial(run_program.run_script, code)
    if mode == "call":
        asked = json.load(sys.stdin)
        arguments = json.dumps(asked["args"]).encode()
        return partial(run_program.run_call, code, asked["call"], arguments)
    return partial(run_program.run_callee, code)
