"""One zygote and the host's end of its channel. Blocking; used by one thread at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from coding_model_project.errors import SandboxError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import fork_server, frames
from coding_model_project.sandbox.embedded.fast_path import calls, together
from coding_model_project.sandbox.embedded.outcomes import (
    Ended,
    execution,
    requests,
    syntax_error,
)
from coding_model_project.types import (
    Call,
    Execution,
    Input,
    Limits,
    Program,
    Stdin,
)

_PACKAGE_ROOT = Path(__file__).parents[3]
_INHERITED = ("LD_LIBRARY_PATH", "CODING_RUN_TOKEN")
"""Environment the interpreter needs, or by which a run finds its processes; gone for programs."""

_START_S = 60.0
COMPILE_S = 60.0
_LONGEST_ALONE = 1 << 16
"""Bytes of a source whose compilation may count as the CPU time of its test, nearly nothing."""
_LONGEST_HEAD = 450
"""Characters in JSON, besides the source's size, that a head for `fork_server` has room for."""
_SHARE_OF_MEMORY = 4
"""Arguments of several calls may fill 1/2**4 of a program's memory."""
_MARGIN_S = 15.0
"""Wall seconds above a wait's own limit before the zygote is given up as hanging."""


class ZygoteLost(Exception):
    """The zygote, or the process of a program, ended or hung. Worth another try."""


class Slot:
    """Runs programs one after another in one zygote, which it starts when there is none."""

    _MODULE = "coding_model_project.sandbox.embedded.zygote"

    def __init__(
        self,
        tier: Tier,
        python: str,
        preload: Sequence[str] = (),
        *,
        compiled_loop: bool = True,
        share_processes: bool = False,
    ) -> None:
        """Args as of `EmbeddedSandbox`."""
        self._tier, self._compiled_loop = tier, compiled_loop
        self._share_processes = share_processes
        self._command = [python, "-s", "-B", "-P", "-X", "int_max_str_digits=0", "-m"]
        self._preload = ",".join(preload)
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False
        """The last program was told to end and its zygote has not yet said that it did."""
        self.python_version = ""
        self._serves_alone = False
        """Whether the zygote takes a program with its only input (`fork_server`)."""
        self._limits: Limits | None = None
        """For which it is ready to."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the zygote and wait until it is ready.

        It dies with the thread that calls this, at the latest.

        Raises:
            SandboxError: it did not start; with what it said.
        """
        ours, theirs = socket.socketpair()
        errors = os.memfd_create("zygote-stderr")
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "PYTHONPATH": str(_PACKAGE_ROOT),
            "PYTHONHASHSEED": "0",
            "PYTHONUTF8": "1",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        arguments = [self._MODULE, str(os.getpid()), str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                [*self._command, *arguments, self._tier, *self._arguments()],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                cwd="/",
            )
            theirs.close()
            ours.settimeout(_START_S)
            self._channel, self._ending = ours, False
            head, _ = frames.receive(ours)
            self.python_version = str(head["python"])
            self._serves_alone = bool(head.get("serves_alone"))
            self._limits = None
        except (OSError, EOFError, ValueError, KeyError) as error:
            self.stop()
            said = os.pread(errors, 4000, max(0, os.fstat(errors).st_size - 4000)).decode().strip()
            reason = said.splitlines()[-1] if said else f"{error}"
            raise SandboxError(f"zygote of tier {self._tier} does not start: {reason}") from error
        finally:
            theirs.close()
            os.close(errors)
            if self._channel is not ours:
                ours.close()

    def stop(self) -> None:
        """End the zygote and all below it, and wait until they are gone."""
        channel, self._channel, self._ending = self._channel, None, False
        process, self._process = self._process, None
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
            channel.close()
        if process is None:
            return
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(process.pid).children(recursive=True)
        for child in below:
            with contextlib.suppress(psutil.Error):
                child.kill()  # the zygote reaps it, reads the end of its channel, and ends
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        psutil.wait_procs(below, timeout=2.0)

    def interrupt(self) -> None:
        """End the run in progress in another thread, which gets ZygoteLost and stops the zygote."""
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
        """Append the execution of each input to `executions`, which may hold the first already.

        Raises:
            ZygoteLost: to be tried again; `executions` holds all that was answered.
            SandboxError: the zygote did not start.
        """
        try:
            source = program.source.encode()
        except UnicodeEncodeError as error:
            executions += [syntax_error(str(error))] * (len(inputs) - len(executions))
            return
        try:
            if self._channel is None:
                self.start()
            self._run(program, source, inputs, limits, executions, stop)
        except BaseException:
            self.stop()  # the channel may be amid a program
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
            return  # the zygote was lost after the last that was wanted

        def add(seen: Iterable[Execution]) -> bool:
            """Whether there is more to do after these."""
            for one in seen:
                executions.append(one)
                if stop(len(executions) - 1, one):
                    return False
            return len(executions) < len(inputs)

        comes_alone = self._serves_alone and len(source) <= _LONGEST_ALONE and not program.files
        if comes_alone and not add(self._alone(source, inputs[len(executions) :], limits)):
            return
        left = inputs[len(executions) :]
        failed = self._begin(program, source, limits)
        if failed is not None:
            add([failed] * len(left))
            return
        more = add(self._tried_together(left, limits)) if self._share_processes else True
        while more:
            more = add([self._one(inputs[len(executions)], limits)])
        self._send({"end": True})
        self._ending = True

    def _tried_together(self, inputs: Sequence[Input], limits: Limits) -> list[Execution]:
        """Of the first inputs, as many as a try of all shows (`together`)."""
        whole = together.joined(inputs)
        if whole is None:
            return []
        return together.believed(whole, self._one(whole.tests, together.hurried(limits)))

    def _one(self, given: Input, limits: Limits) -> Execution:
        """One input of the program at hand.

        Args:
            limits: CPU and wall time at most the program's, all else just that.
        """
        for request in requests(given, limits):
            self._send(*request)
        head, body = self._receive(limits.wall_s + _MARGIN_S)
        if "done" in head:
            raise ZygoteLost(f"the process of the program ended with {head['done']}")
        ended = Ended.read(head, body)
        if not ended.confined:
            raise ZygoteLost(f"a test could not be confined: {ended.stderr[-200:]}")
        return execution(given, ended, limits)

    def _alone(self, source: bytes, inputs: Sequence[Input], limits: Limits) -> list[Execution]:
        """Of the first inputs, as many as one process shows that takes the program with them."""
        match inputs:
            case [Stdin() | Call() as only]:
                ((head, data),) = requests(only, limits)
                if len(json.dumps(head)) > _LONGEST_HEAD:
                    return []
                ended = self._come_alone(source, head, data, limits)
                return [_refused(ended) or execution(only, ended, limits)]
        asked = calls.of(inputs) if self._share_processes else None
        if asked is None:
            return []
        head, data = asked.request
        longest = limits.memory_mb << 20 >> _SHARE_OF_MEMORY
        if len(json.dumps(head)) > _LONGEST_HEAD or len(data) > longest:
            return []
        hurried = together.hurried(limits)
        ended = self._come_alone(source, head, data, hurried)
        failed = _refused(ended)
        return [failed] * len(inputs) if failed else calls.believed(asked, ended, hurried)

    def _come_alone(self, source: bytes, head: frames.Head, data: bytes, limits: Limits) -> Ended:
        """What becomes of a program that comes with all it is asked, and takes one process."""
        if limits != self._limits:
            self._send({"limits": asdict(limits)})
            self._limits = limits
        self._send({"single": len(source), **head}, source + data)
        ended = Ended.read(*self._receive(COMPILE_S + limits.wall_s + _MARGIN_S))
        crashed = ended.exit < 0 and ended.exit != -signal.SIGKILL  # the compiler, on this source
        if not (ended.confined or ended.refused or crashed):
            raise ZygoteLost(f"a test could not be confined: {ended.stderr[-200:]}")
        return ended

    def _begin(self, program: Program, source: bytes, limits: Limits) -> Execution | None:
        """Have a program compiled; what becomes of each of its inputs if it does not compile."""
        head = {
            "limits": asdict(limits),
            "sizes": [len(source), *map(len, program.files.values())],
            "files": list(program.files),
        }
        self._send(head, b"".join([source, *program.files.values()]))
        head, _ = self._receive(COMPILE_S)
        if head.get("done", 0) in (1, -signal.SIGKILL):
            raise ZygoteLost(f"the process of the program ended with {head['done']}")
        if "compiled" in head:
            return None
        self._ending = "done" not in head  # if it is, the compiler itself crashed on this source
        return syntax_error(head.get("syntax_error", "the compiler crashed"))

    def _arguments(self) -> list[str]:
        """What the zygote's module is started with, after its tier."""
        library = fork_server.library() if self._compiled_loop else None
        return [self._preload, str(library or "")]

    def _send(self, head: frames.Head, body: bytes = b"") -> None:
        channel = self._open_channel()
        try:
            channel.settimeout(_MARGIN_S)
            frames.send(channel, head, body)
        except OSError as error:
            raise ZygoteLost(f"{type(error).__name__}: {error}") from error

    def _receive(self, timeout_s: float) -> tuple[frames.Head, bytes]:
        channel = self._open_channel()
        try:
            channel.settimeout(timeout_s)
            return frames.receive(channel)
        except (EOFError, OSError, ValueError) as error:
            raise ZygoteLost(f"{type(error).__name__}: {error}") from error

    def _open_channel(self) -> socket.socket:
        if self._channel is None:
            raise ZygoteLost("not started")
        return self._channel


def _refused(ended: Ended) -> Execution | None:
    """Of a program that was not run, since it does not compile."""
    if ended.confined:
        return None
    return syntax_error(ended.stderr if ended.refused else "the compiler crashed")
