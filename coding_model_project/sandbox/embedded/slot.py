"""One zygote and the host's end of its channel: blocking, for one thread at a time.

The zygote's compiled loop, `fork_server.c`, is compiled once in less than a second, and kept in the
user's cache. Only the host imports this module. In a zygote it would import `subprocess` and
`tempfile`, whose handlers run in every forked process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import math
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from coding_model_project.errors import OverloadError, SandboxError
from coding_model_project.isolation.child import Helper
from coding_model_project.isolation.confine import Tier
from coding_model_project.isolation.proc_files import longest_s, oom_kills
from coding_model_project.sandbox.embedded import frames
from coding_model_project.sandbox.embedded.languages import build
from coding_model_project.sandbox.embedded.outcomes import (
    Ended,
    comes_alone,
    continues,
    execution,
    fresh,
    request,
    syntax_error,
)
from coding_model_project.types import Execution, Input, Limits, Program, Status

_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONINTMAXSTRDIGITS": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "LD_BIND_NOW": "1",  # else every forked process binds the functions that it calls first
}
"""Environment of the interpreter, which programs do not see."""

COMPILE_S = 60.0
_CHUNK = 1 << 16
"""Most bytes to receive at once; a larger buffer would be mapped anew for each message."""
_MOST_AT_ONCE, _MOST_BYTES_AT_ONCE = 64, 1 << 16
"""Inputs of a shared process that are sent together, and their bytes; a single one may have more."""
_QUICK_S = 0.1
"""Wall seconds of inputs that were sent together, below which more are sent together next."""
_LEFT_S = 1.0
"""Wall seconds for inputs that were sent and are no longer needed: as long as a zygote takes to start."""
_MARGIN_S = 15.0
"""Wall seconds beyond a wait's own limit after which the zygote counts as hanging."""


class ZygoteLost(Exception):
    """The zygote, or the process of a program, ended or hung; the run can be retried."""


class Slot:
    """A runner of programs, one after another, in one zygote that it starts on demand."""

    _MODULE = "coding_model_project.sandbox.embedded.zygote"

    def __init__(
        self,
        tier: Tier,
        python: str,
        preload: Sequence[str] = (),
        *,
        compiled_loop: bool = True,
    ) -> None:
        """Take the arguments of `EmbeddedSandbox`."""
        self._tier, self._python, self._compiled_loop = tier, python, compiled_loop
        self._preload = ",".join(preload)
        self._channel: socket.socket | None = None
        self._buffer = bytearray()
        """Received bytes of the channel that belong to no frame yet."""
        self._waits_s = 0.0
        """The channel's time-out for answers."""
        self._zygote: Helper | None = None
        self._ending = False
        """True while the zygote has yet to confirm the end of the last program's process."""
        self.python_version = ""
        self.preloaded: tuple[str, ...] = ()
        """Name and version of each preloaded module."""
        self._serves_alone = False
        """True if the zygote takes a program with its only input (`fork_server`)."""
        self._limits: Limits | None = None
        """Limits that the zygote last received for such programs."""
        self._oom_kills = 0
        """Processes that the kernel had killed for lack of memory when the last run began."""

    def start(self) -> None:
        """Start the zygote and wait until it is ready; it dies at the latest with the calling thread.

        Raises:
            SandboxError: it did not start; with its error message.
        """
        module = (self._MODULE, self._tier, *self._arguments())
        preloaded = {"LD_PRELOAD": self._library()} if self._compiled_loop else {}
        environment = {**_ENVIRONMENT, **preloaded}
        try:
            with Helper.starting(*module, python=self._python, environment=environment) as zygote:
                head, _ = frames.receive(zygote.channel)
                self._channel, self._waits_s = zygote.channel, 0.0
                # Not settimeout(), which would cost two system calls more for each message.
                zygote.channel.settimeout(None)
                zygote.channel.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_MARGIN_S)
                )
                # Takes inputs that are sent together, whatever the machine's default is.
                zygote.channel.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MOST_BYTES_AT_ONCE
                )
                self.python_version = str(head["python"])
                self.preloaded = tuple(map(str, head.get("preloaded", ())))
        except ChildProcessError as error:
            self.stop()
            raise SandboxError(f"zygote of tier {self._tier} does not start: {error}") from error
        self._zygote = zygote
        self._serves_alone = bool(head.get("serves_alone"))
        self._limits = None

    def stop(self) -> None:
        """End the zygote and all below it, and wait until they are gone."""
        self.interrupt()
        zygote, self._zygote = self._zygote, None
        self._channel, self._ending = None, False
        self._buffer.clear()
        if zygote is None:
            return
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(zygote.process.pid).children(recursive=True)
        for child in below:
            with contextlib.suppress(psutil.Error):
                child.kill()  # the zygote reaps it, reads the end of its channel, and ends
        zygote.stop()
        psutil.wait_procs(below, timeout=2.0)

    def interrupt(self) -> None:
        """Interrupt another thread's run, which gets ZygoteLost and stops the zygote."""
        channel = self._channel
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)

    def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        executions: list[Execution],
        stop: Callable[[int, Execution], bool],
    ) -> None:
        """Append the execution of each input to `executions`, which may already hold the first ones.

        Raises:
            ZygoteLost: retry the call; `executions` holds all executions so far.
            OverloadError: the machine ended the program; retry the call when it is less busy.
            SandboxError: the zygote did not start.
        """
        self._oom_kills = oom_kills()
        try:
            source = program.source.encode()
        except UnicodeEncodeError as error:
            executions += [syntax_error(str(error))] * (len(inputs) - len(executions))
            return
        try:
            if self._channel is None:
                self.start()
            self._run(program, source, inputs, limits, executions, stop)
        except OverloadError:
            raise  # the channel is between programs, or the zygote was stopped
        except BaseException:
            self.stop()  # the channel may be in the middle of a program
            raise

    def _run(
        self,
        program: Program,
        source: bytes,
        inputs: Sequence[Input],
        limits: Limits,
        executions: list[Execution],
        stop: Callable[[int, Execution], bool],
    ) -> None:
        if self._ending:
            self._receive(_MARGIN_S)
            self._ending = False
        if executions and (
            len(executions) == len(inputs) or stop(len(executions) - 1, executions[-1])
        ):
            return  # the zygote was lost after the last execution needed

        def add(seen: Iterable[Execution]) -> bool:
            """Append executions; return whether more inputs must run."""
            for one in seen:
                executions.append(one)
                if stop(len(executions) - 1, one):
                    return False
            return len(executions) < len(inputs)

        left = inputs[len(executions) :]
        if self._serves_alone and comes_alone(program, source, left, limits):
            add([self._alone(source, left[0], limits)])
            return
        refused = self._begin(program, source, limits)
        if refused is not None:
            add([refused] * len(left))
            return
        self._run_inputs(left, limits, add)

    def _run_inputs(
        self,
        inputs: Sequence[Input],
        limits: Limits,
        add: Callable[[Iterable[Execution]], bool],
    ) -> None:
        """Run inputs of the current program as if each had its own processes, while `add` wants more."""
        within_s = longest_s(limits.wall_s) + _MARGIN_S
        # At tier rlimit a program of root could read what waits in the channel.
        most = 1 if self._tier == Tier.rlimit else _MOST_AT_ONCE
        sent, at_once, left_over = 0, 1, b""
        more, i, began = True, 0, time.monotonic()
        while more:
            if sent == i:
                is_quick = time.monotonic() - began < _QUICK_S
                at_once = min(2 * at_once, most) if i and is_quick else 1
                n, left_over = self._send_inputs(inputs, i, i + at_once, limits, left_over)
                sent, began = i + n, time.monotonic()
            given = inputs[i]
            i += 1
            ended = self._outcome(within_s)
            if ended.unread:
                while sent > i:
                    self._outcome(within_s)
                    sent -= 1
                # The next input is sent alone: those behind an unread one have run in vain.
                left_over, began = b"", -math.inf
                keep = any(map(continues, inputs[i : i + 1]))
                self._send(*request(fresh(given), limits, keep=keep))
                ended = self._outcome(within_s)
            try:
                more = add([self._checked(execution(given, ended, limits))])
            except OverloadError:
                self._end_program(sent - i)
                raise
        self._end_program(sent - i)

    def _send_inputs(
        self, inputs: Sequence[Input], start: int, end: int, limits: Limits, first: bytes
    ) -> tuple[int, bytes]:
        """Send an input, and short ones that continue it, up to `end`.

        An input of a shared process takes less time than a message. Those that wait in the channel, which
        no program can read, fit in its buffer, so this never blocks for an earlier outcome.

        Args:
            first: the frame of the first, if it is known.

        Returns:
            How many were sent, and the frame of the next if it was too long for them.
        """
        sent, content, one = 0, b"", first
        for i in range(start, end):
            keep = any(map(continues, inputs[i + 1 : i + 2]))
            one = one or frames.encoded(*request(inputs[i], limits, keep=keep))
            if sent and len(content) + len(one) > _MOST_BYTES_AT_ONCE:
                break
            content, one = content + one, b""
            sent += 1
            if not keep:
                break
        self._send_bytes(content)
        return sent, one

    def _end_program(self, unanswered: int = 0) -> None:
        """End the process of a program; the zygote too, if inputs that were sent in vain take long."""
        until = time.monotonic() + _LEFT_S
        try:
            for _ in range(unanswered):
                if (left_s := until - time.monotonic()) <= 0:
                    raise ZygoteLost("inputs that nobody needs take too long")
                self._outcome(left_s)
        except ZygoteLost:
            self.stop()
            return
        self._send({"end": True})
        self._ending = True

    def _checked(self, execution: Execution) -> Execution:
        """Return an execution unless the kernel may have ended its process for lack of memory.

        Raises:
            OverloadError: it may have.
        """
        if execution.status is Status.killed and self.saw_oom_kill():
            raise OverloadError("the machine ran out of memory: the kernel killed a program")
        return execution

    def saw_oom_kill(self) -> bool:
        """Return whether the kernel has killed a process of this machine since the last run began."""
        return oom_kills() > self._oom_kills

    def _outcome(self, within_s: float) -> Ended:
        head, body = self._receive(within_s)
        if "done" in head:
            raise ZygoteLost(f"the process of the program ended with {head['done']}")
        ended = Ended.read(head, body)
        if not ended.confined:
            raise ZygoteLost(f"a test could not be confined: {ended.stderr[-200:]}")
        return ended

    def _alone(self, source: bytes, only: Input, limits: Limits) -> Execution:
        """Run an only input in a process that takes the program with it."""
        head, data = request(fresh(only), limits)
        if limits != self._limits:
            self._send({"limits": asdict(limits)})
            self._limits = limits
        self._send({"single": len(source), **head}, source + data)
        ended = Ended.read(*self._receive(longest_s(COMPILE_S + limits.wall_s) + _MARGIN_S))
        if not ended.was_seen(alone=True):
            raise ZygoteLost(f"a test could not be confined: {ended.stderr[-200:]}")
        return ended.refusal or self._checked(execution(only, ended, limits))

    def _begin(self, program: Program, source: bytes, limits: Limits) -> Execution | None:
        """Have a program compiled; return each input's execution if it does not compile."""
        head = {
            "limits": asdict(limits),
            "sizes": [len(source), *map(len, program.files.values())],
            "files": list(program.files),
        }
        self._send(head, b"".join([source, *program.files.values()]))
        head, _ = self._receive(longest_s(COMPILE_S))
        if head.get("done", 0) in (1, -signal.SIGKILL):
            raise ZygoteLost(f"the process of the program ended with {head['done']}")
        if "compiled" in head:
            return None
        self._ending = "done" not in head  # "done": the compiler itself crashed on this source
        return syntax_error(head.get("syntax_error", "the compiler crashed"))

    def _arguments(self) -> list[str]:
        """Return the arguments of the zygote's module after its tier."""
        return [self._preload, self._library()]

    def _library(self) -> str:
        """Return the path of the compiled loop; empty for none."""
        return str(compiled_loop() or "") if self._compiled_loop else ""

    def _send(self, head: frames.Head, body: bytes = b"") -> None:
        self._send_bytes(frames.encoded(head, body))

    def _send_bytes(self, content: bytes) -> None:
        channel = self._open_channel()
        try:
            channel.sendall(content)
        except OSError as error:
            raise ZygoteLost(f"{type(error).__name__}: {error}") from error

    def _receive(self, timeout_s: float) -> tuple[frames.Head, bytes]:
        channel = self._open_channel()
        try:
            if timeout_s != self._waits_s:
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout_s))
                self._waits_s = timeout_s
            head, body = frames.LENGTHS.unpack(self._take(channel, frames.LENGTHS.size))
            return json.loads(self._take(channel, head).decode()), self._take(channel, body)
        except BlockingIOError:
            raise ZygoteLost(f"it sent nothing for {timeout_s:g} s") from None
        except (EOFError, OSError, ValueError) as error:
            raise ZygoteLost(f"{type(error).__name__}: {error}") from error

    def _take(self, channel: socket.socket, n: int) -> bytes:
        buffer = self._buffer
        while len(buffer) < n:
            chunk = channel.recv(_CHUNK)
            if not chunk:
                raise EOFError("the other side closed")
            buffer += chunk
        taken = bytes(memoryview(buffer)[:n])
        del buffer[:n]
        return taken

    def _open_channel(self) -> socket.socket:
        if self._channel is None:
            raise ZygoteLost("not started")
        return self._channel


def _timeval(seconds: float) -> bytes:
    """Return the C structure of a socket's time-out."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


LOOP = Path(__file__).with_name("fork_server.c")
LOOP_FLAGS = ("-O2", "-shared", "-fPIC", "-Wl,-z,now")
_LIBRARY = "loop.so"
_BUILD_S = 60.0


@functools.lru_cache
def compiled_loop() -> Path | None:
    """Return the compiled loop, compiling it if necessary; None if that is impossible."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    given = LOOP.read_bytes(), build.stamp(compiler), LOOP_FLAGS
    _, folder = build.made_by("fork_server", *given)
    try:
        build.make_once(folder, _LIBRARY, functools.partial(_compile_loop, compiler))
    except (OSError, subprocess.SubprocessError):
        return None
    return folder / _LIBRARY


def _compile_loop(compiler: str, target: Path) -> None:
    """Compile the loop; raise OSError if it does not load, and as `build.output` does."""
    build.output(compiler, *LOOP_FLAGS, str(LOOP), "-o", str(target), timeout_s=_BUILD_S)
    ctypes.PyDLL(str(target))
    with target.open("rb") as file:
        os.fsync(file.fileno())  # else a power cut could leave the name without the content


def how_tests_fork() -> str:
    """Return a phrase that says how tests are forked here."""
    if compiled_loop() is not None:
        return "by compiled code"
    return "by Python code: with a C compiler (apt-get install gcc libc6-dev) they would cost less"
