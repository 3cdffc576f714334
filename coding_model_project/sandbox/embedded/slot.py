"""One zygote and the host's end of its channel. Blocking; used by one thread at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from coding_model_project.errors import DataError, SandboxError
from coding_model_project.sandbox.embedded import codec, frames, together
from coding_model_project.sandbox.embedded.confine import Tier
from coding_model_project.sandbox.embedded.program import OUT_OF_MEMORY
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Files,
    Input,
    Limits,
    Opaque,
    Plain,
    Program,
    Status,
    Stdin,
)

_PACKAGE_ROOT = Path(__file__).parents[3]
_INHERITED = ("LD_LIBRARY_PATH", "CODING_RUN_TOKEN")
"""Environment the interpreter needs, or by which a run finds its processes; gone for programs."""

_START_S = 60.0
COMPILE_S = 60.0
_MARGIN_S = 15.0
"""Wall seconds above a wait's own limit before the zygote is given up as hanging."""


class ZygoteLost(Exception):
    """The zygote, or the process of a program, ended or hung. Worth another try."""


class Slot:
    """Runs programs one after another in one zygote, which it starts when there is none."""

    _MODULE = "zygote"

    def __init__(self, tier: Tier, python: str, preload: Sequence[str] = ()) -> None:
        self._tier = tier
        self._command = [python, "-s", "-B", "-P", "-X", "int_max_str_digits=0", "-m"]
        self._preload = ",".join(preload)
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False
        """The last program was told to end and its zygote has not yet said that it did."""
        self.python_version = ""

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
        arguments = [f"{__package__}.{self._MODULE}", str(os.getpid()), str(theirs.fileno())]
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
            executions += [_syntax_error(str(error))] * (len(inputs) - len(executions))
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
        failed = self._begin(program, source, limits)
        if failed is not None:
            for index in range(len(executions), len(inputs)):
                executions.append(failed)
                if stop(index, failed):
                    break
            return
        stopped = False
        for execution in self._tried_together(inputs[len(executions) :], limits):
            executions.append(execution)
            stopped = stop(len(executions) - 1, execution)
            if stopped:
                break
        while not stopped and len(executions) < len(inputs):
            executions.append(self._one(inputs[len(executions)], limits))
            stopped = stop(len(executions) - 1, executions[-1])
        self._send({"end": True})
        self._ending = True

    def _tried_together(self, inputs: Sequence[Input], limits: Limits) -> list[Execution]:
        """Of the first inputs, as many as a try of all shows (`together`)."""
        whole = together.joined(inputs)
        if whole is None:
            return []
        hurried = replace(
            limits,
            cpu_s=min(limits.cpu_s, together.CPU_S),
            wall_s=min(limits.wall_s, together.WALL_S),
        )
        return together.believed(whole, self._one(whole.tests, hurried))

    def _one(self, given: Input, limits: Limits) -> Execution:
        """One input of the program at hand.

        Args:
            limits: CPU and wall time at most the program's, all else just that.
        """
        for request in _requests(given, limits):
            self._send(*request)
        head, body = self._receive(limits.wall_s + _MARGIN_S)
        if "done" in head:
            raise ZygoteLost(f"the process of the program ended with {head['done']}")
        if not head["confined"]:
            raise ZygoteLost(f"a test could not be confined: {head['stderr'][-200:]}")
        return _execution(given, head, body, limits)

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
        return _syntax_error(head.get("syntax_error", "the compiler crashed"))

    def _arguments(self) -> list[str]:
        """What the zygote's module is started with, after its tier."""
        return [self._preload]

    def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        channel = self._open_channel()
        try:
            channel.settimeout(_MARGIN_S)
            frames.send(channel, head, body)
        except OSError as error:
            raise ZygoteLost(f"{type(error).__name__}: {error}") from error

    def _receive(self, timeout_s: float) -> tuple[dict[str, Any], bytes]:
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


def _requests(given: Input, limits: Limits) -> list[tuple[dict[str, Any], bytes]]:
    """The frames that ask for one input. Asserts take two: only their own process reads the second."""
    match given:
        case Stdin():
            return [({}, given.text.encode("utf-8", "surrogatepass"))]
        case Call():
            return [({"function": given.function}, codec.encode(given.args))]
        case Asserts():
            head = {"asserts": given.entry_point, "within": [limits.cpu_s, limits.wall_s]}
            return [(head, b""), ({}, given.source.encode())]
        case Files():
            texts = [text.encode("utf-8", "surrogatepass") for text in given.contents.values()]
            head = {"arguments": list(given.contents), "sizes": [len(text) for text in texts]}
            return [(head, b"".join(texts))]


def _syntax_error(reason: str) -> Execution:
    return Execution(status=Status.syntax_error, stderr_tail=reason)


def _execution(given: Input, head: dict[str, Any], body: bytes, limits: Limits) -> Execution:
    printed, answered = body[: head["printed"]], body[head["printed"] :]
    value: Plain | Opaque = None
    status = _status(head, limits)
    stderr = head["stderr"]
    match given:
        case Call() if status is Status.finished:
            if answered:
                value = codec.decode(answered, limits.output_kb << 10)
            else:
                status, stderr = Status.raised, stderr or "the program ended without an answer"
        case Asserts():
            said = _Said.read(answered)
            if status is Status.finished or (status is Status.raised and said.of_limit):
                status = said.status  # a program that raised may only have lost its tests
            if status is Status.finished:
                value = said.passed or said.line
            else:
                stderr = "\n".join(filter(None, (stderr.rstrip(), said.line)))
        case _:
            pass
    return Execution(
        status=status,
        stdout=printed.decode("utf-8", "replace"),
        stderr_tail=stderr,
        value=value,
        exit_code=head["exit"] if head["exit"] >= 0 else None,
        cpu_s=head["cpu_s"],
        wall_s=head["wall_s"],
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """What the process of the tests wrote to the file that it alone has."""

    passed: bool
    status: Status
    line: str

    @property
    def of_limit(self) -> bool:
        """Whether the program's answer was too much for the tests."""
        return self.status in (Status.output_limit, Status.memory_limit)

    @classmethod
    def read(cls, answered: bytes) -> _Said:
        """Anything but a pass said in full is a failure.

        Raises:
            DataError: the tests do not compile.
        """
        try:
            said = json.loads(answered)
        except ValueError:
            said = {"failed": "raised", "line": "the tests ended without a word"}
        if said.get("passed") is True:
            return cls(True, Status.finished, "")
        line = str(said.get("line", ""))
        if said["failed"] == "data":
            raise DataError(f"the tests do not compile: {line}")
        return cls(False, _FAILED[said["failed"]], line or "the program gave no answer")


_FAILED = {
    "assertion": Status.finished,
    "raised": Status.raised,
    "memory": Status.memory_limit,
    "output": Status.output_limit,
}


def _status(head: dict[str, Any], limits: Limits) -> Status:
    code = head["exit"]
    if head["killed"] == "cpu" or head["cpu_s"] > limits.cpu_s or code == -signal.SIGXCPU:
        return Status.cpu_timeout
    if head["full"]:
        return Status.output_limit
    if head["killed"] == "wall":
        return Status.wall_timeout
    if head["killed"] == "memory":
        return Status.memory_limit
    if code == OUT_OF_MEMORY and head["stderr"].endswith("MemoryError\n"):
        return Status.memory_limit
    if code < 0:  # or one thread too many
        return Status.signalled
    return Status.raised if code else Status.finished
