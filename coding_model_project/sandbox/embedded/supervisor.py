"""The host's side of the embedded sandbox: a pool of zygotes, each with one program at a time."""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self, TypeVar

from coding_model_project import codec
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import frames
from coding_model_project.sandbox.embedded.confine import Tier
from coding_model_project.sandbox.embedded.zygote_codes import (
    COULD_NOT_CONFINE,
    NO_ANSWER,
    OUT_OF_MEMORY,
)
from coding_model_project.types import (
    Call,
    Execution,
    Input,
    Limits,
    Opaque,
    Program,
    Status,
    Stdin,
)

_START_S = 30.0
_MARGIN_S = 15.0
"""Beyond a program's own limits, the time after which a zygote counts as lost."""
_TRIES = 2
_T = TypeVar("_T")


class _Zygote:
    """One zygote process and the channel to it. Used by one thread at a time."""

    def __init__(self, tier: Tier, python: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [python, "-s", "-B", "-X", "int_max_str_digits=0"]
                    + ["-m", "coding_model_project.sandbox.embedded.zygote"]
                    + [str(theirs.fileno()), str(tier)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    env=_environment(),
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxError(f"the sandbox's interpreter {python} does not start: {error}") from error
        self.channel = ours
        self.tier = tier
        ours.settimeout(_START_S)
        try:
            frames.receive(ours)
        except (EOFError, OSError) as error:
            self.close()
            reason = self._stderr_line() or str(error)
            raise SandboxError(f"tier {tier} does not start: {reason}") from error

    def close(self) -> None:
        """End the zygote and, through its death, all that it forked."""
        self.channel.close()
        self.process.kill()
        self.process.wait()

    def _stderr_line(self) -> str:
        assert self.process.stderr is not None
        lines = self.process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        stop_when: StopWhen | None,
    ) -> list[Execution]:
        """Raises EOFError, OSError or ValueError if the zygote is lost."""
        source = program.source.encode("utf-8", "surrogatepass")
        self.channel.settimeout(_MARGIN_S + 20)
        frames.send(self.channel, {"limits": asdict(limits)}, source)
        head, _ = frames.receive(self.channel)
        if "compiled" not in head:
            if "syntax_error" in head:
                frames.receive(self.channel)  # done
            # else the compiler itself died on this source: that is the source's doing
            reason = head.get("syntax_error", "the compiler died")
            return [Execution(status=Status.syntax_error, stderr_tail=reason)] * len(inputs)
        executions = []
        self.channel.settimeout(limits.wall_s + _MARGIN_S)
        for index, given in enumerate(inputs):
            frames.send(self.channel, *_request(given))
            head, data = frames.receive(self.channel)
            if "exit" not in head:
                raise EOFError("the program's process died")
            executions.append(_execution(given, head, data))
            if stop_when is not None and stop_when(index, executions[-1]):
                break
        frames.send(self.channel, {"end": True})
        frames.receive(self.channel)  # done
        return executions


def _environment() -> dict[str, str]:
    """What a zygote needs to start; nothing of the host's secrets."""
    names = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CODING_RUN_TOKEN")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return kept | {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}


def _request(given: Input) -> tuple[dict[str, Any], bytes]:
    match given:
        case Stdin(text):
            return {"input": True}, text.encode("utf-8", "surrogatepass")
        case Call():
            return {"function": given.function}, codec.dumps(list(given.args))
    raise ConfigError("the embedded sandbox does not run assert tests yet; use Stdin or Call inputs")


def _execution(given: Input, head: dict[str, Any], data: bytes) -> Execution:
    """What the machine saw, as a status. The program can lie about itself, never about another."""
    code = head["exit"]
    answer = data[head["n_stdout"] :]
    if code == COULD_NOT_CONFINE and not data and not head["stderr"] and head["cpu_s"] < 0.5:
        raise EOFError("a test could not be confined")
    value: Any = None
    if head["killed"] == "cpu":
        status = Status.cpu_timeout
    elif head["killed"] == "wall":
        status = Status.wall_timeout
    elif head["full"]:
        status = Status.output_limit
    elif code == OUT_OF_MEMORY or (code and "MemoryError" in head["stderr"][-200:]):
        status = Status.memory_limit
    elif code < 0:
        status = Status.signalled
    elif code:
        status = Status.raised
    elif isinstance(given, Call) and not answer:
        status, code = Status.raised, NO_ANSWER
    else:
        status = Status.finished
        if isinstance(given, Call):
            try:
                value = codec.loads(answer)
            except ValueError:
                value = Opaque("undecodable")
    return Execution(
        status=status,
        stdout=data[: head["n_stdout"]].decode("utf-8", "replace"),
        stderr_tail=head["stderr"],
        value=value,
        exit_code=code,
        cpu_s=head["cpu_s"],
        wall_s=head["wall_s"],
        peak_memory_mb=head["peak_memory_mb"],
    )


class EmbeddedSandbox:
    """Runs Python programs on this machine, with no service, isolated by the kernel.

    Args:
        workers: programs run at once; by default one per CPU core.
        min_tier: refuse to start with weaker isolation than this.
        tier: use just this tier instead of the strongest that works.
        python: the interpreter that runs programs.

    Raises (on entering):
        SandboxError: no tier of at least `min_tier` works here; says why.
    """

    def __init__(
        self,
        workers: int | None = None,
        min_tier: str = "seccomp",
        tier: str | None = None,
        python: str = sys.executable,
    ) -> None:
        self._workers = workers or len(os.sched_getaffinity(0))
        self._min_tier = Tier(min_tier)
        self._wanted = Tier(tier) if tier else None
        self._python = python
        self._tier: Tier | None = None
        self._zygotes: queue.SimpleQueue[_Zygote] = queue.SimpleQueue()
        self._all: set[_Zygote] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._threads: ThreadPoolExecutor | None = None

    @property
    def tier(self) -> Tier:
        if self._tier is None:
            raise RuntimeError("the sandbox has not been started")
        return self._tier

    @property
    def identity(self) -> str:
        return f"embedded/{self.tier}/cpython-{sys.version_info.major}.{sys.version_info.minor}"

    async def __aenter__(self) -> Self:
        # Zygotes die with the thread that started them, so all are started by these threads, which
        # live until the sandbox is left.
        self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="sandbox")
        try:
            await self._in_thread(self._start)
        except BaseException:
            self._stop()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """See `sandbox.base.Sandbox.run`."""
        if program.language != "python":
            raise ConfigError(f"the embedded sandbox runs python, not {program.language}")
        return await self._in_thread(lambda: self._run(program, inputs, limits, stop_when))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        assert self._threads is not None, "use `async with`"
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _start(self) -> None:
        reasons = []
        candidates = [self._wanted] if self._wanted else list(reversed(Tier))
        for tier in candidates:
            if not tier.at_least(self._min_tier):
                break
            try:
                first = _Zygote(tier, self._python)
            except SandboxError as error:
                reasons.append(str(error))
                continue
            self._all.add(first)
            problem = _self_test(first)
            if problem is None:
                self._tier = tier
                self._zygotes.put(first)
                for _ in range(self._workers - 1):
                    self._zygotes.put(self._new_zygote())
                return
            reasons.append(f"tier {tier} does not hold: {problem}")
            self._discard(first)
        raise SandboxError(
            f"no isolation of tier {self._min_tier} or better works here ({'; '.join(reasons)}); "
            "set coding.sandbox.min_tier lower only for programs you trust"
        )

    def _run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        stop_when: StopWhen | None,
    ) -> list[Execution]:
        failure: Exception | None = None
        for _ in range(_TRIES):
            zygote = self._zygotes.get()
            try:
                executions = zygote.run(program, inputs, limits, stop_when)
            except (EOFError, OSError, ValueError) as error:  # lost: killed, out of memory, wedged
                failure = error
                self._replace(zygote)
                continue
            except BaseException:
                self._replace(zygote)
                raise
            self._zygotes.put(zygote)
            return executions
        raise SandboxError(f"the sandbox lost the program {_TRIES} times: {failure}")

    def _new_zygote(self) -> _Zygote:
        zygote = _Zygote(self.tier, self._python)
        with self._lock:
            if self._closed:
                zygote.close()
                raise SandboxError("the sandbox is closed")
            self._all.add(zygote)
        return zygote

    def _discard(self, zygote: _Zygote) -> None:
        zygote.close()
        with self._lock:
            self._all.discard(zygote)

    def _replace(self, zygote: _Zygote) -> None:
        """Put a new zygote in a lost one's place; if none starts, the lost one stays in the queue.

        A lost one fails at once and is replaced by the next program that meets it.
        """
        zygote.close()
        try:
            new = self._new_zygote()
        except SandboxError:
            self._zygotes.put(zygote)
            raise
        with self._lock:
            self._all.discard(zygote)
        self._zygotes.put(new)

    def _stop(self) -> None:
        with self._lock:
            self._closed = True
            zygotes, self._all = self._all, set()
        for zygote in zygotes:
            zygote.close()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)


_PROBE = """
import os
def probe():
    found = []
    try:
        os.fork(); found.append("fork")
    except OSError: pass
    try:
        import socket; socket.socket(); found.append("socket")
    except (OSError, ImportError): pass
    for path in ("/etc/passwd", "/proc/1/environ"):
        try:
            open(path).read(); found.append("read " + path)
        except OSError: pass
    try:
        open("/var/tmp/probe", "w"); found.append("write")
    except OSError: pass
    return found
"""


def _self_test(zygote: _Zygote) -> str | None:
    """What a program could do that it must not, by trying; None if the tier holds."""
    program, call = Program(source=_PROBE), Call(function="probe")
    try:
        (execution,) = zygote.run(program, [call], Limits(cpu_s=5, wall_s=10), None)
    except (EOFError, OSError, ValueError) as error:
        return str(error)
    if zygote.tier is Tier.rlimit:
        return None  # promises none of this
    if execution.status is not Status.finished:
        return f"its self-test ended with {execution.status}: {execution.stderr_tail[-200:]}"
    found = execution.value
    return f"a program could {', '.join(map(str, found))}" if isinstance(found, list) and found else None
