"""A runner of battery cases, one after another, that reports unmet requirements.

It lays out bait that a program must not find or touch, and detects processes and files that it leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from coding_model_project import codec
from coding_model_project.contained import is_ours
from coding_model_project.errors import SandboxError, UngradableError
from coding_model_project.grading.battery.battery_cases import Case, Require
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.isolation.processes import TOKEN, carriers
from coding_model_project.sandbox.base import Sandbox, StopWhen
from coding_model_project.types import Execution, Input, Limits, Problem, Program, Stdin, Test

_GONE_WITHIN_S = 3.0
"""Seconds after a case within which its processes must have ended."""

_PORTS_FREE_WITHIN_S = 60.0
_WATCHED = ("/tmp", "/var/tmp", "/dev/shm")


@contextlib.contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def marked() -> Iterator[None]:
    with variable(TOKEN, os.environ.get(TOKEN) or secrets.token_hex(8)):
        yield


@contextlib.contextmanager
def lay_out(secret: str) -> Iterator[Callable[[], list[str]]]:
    """Place the secret and the listeners, and yield a function that returns the touched listeners.

    Raises:
        SandboxError: the addresses stay in use, or another user made the folder.
    """
    folder = Path("/tmp/sbx_canary")
    with contextlib.ExitStack() as stack:
        listeners = _listeners(stack, folder / "sock")
        stack.enter_context(variable("SBX_CANARY", secret))
        if not is_ours(folder):
            raise SandboxError(f"{folder}: another user made it; have them remove it")
        partial = folder / secrets.token_hex(8)
        partial.write_text(secret)
        partial.replace(folder / "secret.txt")
        stack.callback((folder / "secret.txt").unlink, missing_ok=True)

        def touched() -> list[str]:
            ready, _, _ = select.select(list(listeners), [], [], 0)
            return [listeners[listener] for listener in ready]

        yield touched


def _listeners(stack: contextlib.ExitStack, path: Path) -> dict[socket.socket, str]:
    """Open listeners, by name. A connection or a datagram makes one readable without being accepted."""
    path.parent.mkdir(mode=0o755, exist_ok=True)
    stack.callback(_remove_if_empty, path.parent)
    tcp, udp = (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)
    unix = (socket.AF_UNIX, socket.SOCK_STREAM)
    addresses: list[tuple[tuple[int, int], Any, str]] = [
        (tcp, ("127.0.0.1", 47921), "tcp"),
        (udp, ("127.0.0.1", 47922), "udp"),
        (unix, "\0sbx_canary_sock", "abstract unix"),
        (unix, str(path), "unix"),
    ]
    listeners: dict[socket.socket, str] = {}
    for (family, kind), address, name in addresses:
        listener = stack.enter_context(socket.socket(family, kind))
        if kind == socket.SOCK_STREAM:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, address)
        listeners[listener] = name
    stack.callback(path.unlink, missing_ok=True)
    return listeners


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _bind(listener: socket.socket, address: Any) -> None:
    deadline = time.monotonic() + _PORTS_FREE_WITHIN_S
    while True:
        try:
            if isinstance(address, str) and address.startswith("/"):
                Path(address).parent.mkdir(exist_ok=True)  # another battery may have removed it
                Path(address).unlink(missing_ok=True)  # left by a killed battery
            listener.bind(address)
            if listener.type == socket.SOCK_STREAM:
                listener.listen()
            return
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.ENOENT) or time.monotonic() > deadline:
                raise SandboxError(
                    f"the battery cannot listen on {address!r} ({error}); stop any other battery"
                ) from error
            time.sleep(0.2)


def processes_of_run() -> set[int]:
    """Return the descendants of this process, and any process that carries its token: zygotes inherit
    it, so it identifies their remaining processes."""
    below = {child.pid for child in psutil.Process().children(recursive=True)}
    return below.union(carriers(os.environ[TOKEN]))


async def left_of(before: set[int]) -> list[str]:
    """Return the processes that a case left running, except the sandbox's own direct children."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while True:
        children = {child.pid for child in psutil.Process().children()}
        left = [
            str(pid) for pid in processes_of_run() - before - children if psutil.pid_exists(pid)
        ]
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.02)


def files_in_reach() -> set[str]:
    """Return the paths in world-writable folders and in the working directory, two levels deep."""
    found: set[str] = set()
    for top in (*_WATCHED, str(Path.cwd())):
        for folder, below, names in os.walk(top):
            found.update(f"{folder}/{name}" for name in (*names, *below))
            if folder != top:
                below.clear()
    return found


ACCEPTED = "accepted"

_HONEST = "a, b = map(int, input().split())\nprint(a * b)"
_HONEST_PROBLEM = Problem(
    id="battery/honest",
    split="test",
    statement="Multiply two numbers.",
    tests=(Test(input=Stdin("6 7\n"), expected="42\n"),),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a case; it passed if no requirement is unmet."""

    case: Case
    verdict: str
    seconds: float
    unmet: tuple[str, ...]
    """Names of unmet requirements, each with the observation."""

    @property
    def only_files(self) -> bool:
        """True if new files are the only unmet requirement."""
        return bool(self.unmet) and all(name.startswith("no_new_files") for name in self.unmet)

    @property
    def succeeded(self) -> bool:
        """True if an attack gained anything beyond a different verdict."""
        return any(not unmet.startswith("verdict_in") for unmet in self.unmet)


def summary(outcomes: Sequence[Outcome], tier: str) -> dict[str, Any]:
    """Return the counts for the command's last line."""
    attacks = [o for o in outcomes if o.case.attack]
    controls = [o for o in outcomes if o.case.control]
    return {
        "cases": len(outcomes),
        "passed": sum(not o.unmet for o in outcomes),
        "failed": [o.case.id for o in outcomes if o.unmet],
        "attacks": len(attacks),
        "attacks_succeeded": sum(o.succeeded for o in attacks),
        "controls": len(controls),
        "controls_failed": sum(bool(o.unmet) for o in controls),
        "tier": tier,
    }


async def run_battery(
    cases: Sequence[Case], sandbox: Sandbox, done: Callable[[Outcome], object] = lambda _: None
) -> tuple[list[Outcome], str]:
    """Start the sandbox and run the cases in it, one after another.

    Returns:
        The outcomes, and the sandbox's identity.

    Raises:
        SandboxError: the sandbox does not start, or another battery runs on this machine.
    """
    secret_of_sandbox = secrets.token_hex(16)
    outcomes = []
    with marked(), variable("SBX_CANARY", secret_of_sandbox):  # the sandbox may inherit these
        async with sandbox:
            recorder = _Recorder(sandbox)
            grader = ExecutionGrader(recorder, stop_early=True)
            for case in cases:
                outcome = await _run_case(case, recorder, grader, secret_of_sandbox)
                if outcome.only_files:  # other processes of this machine write there too
                    outcome = await _run_case(case, recorder, grader, secret_of_sandbox)
                outcomes.append(outcome)
                done(outcomes[-1])
            return outcomes, sandbox.identity


@dataclass
class _Recorder:
    """A sandbox that records the output of programs, which verdicts do not keep."""

    sandbox: Sandbox
    printed: list[str] = field(default_factory=list)

    @property
    def identity(self) -> str:
        return self.sandbox.identity

    async def __aenter__(self) -> _Recorder:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        executions = await self.sandbox.run(program, inputs, limits, stop_when=stop_when)
        for execution in executions:
            value = codec.dumps(execution.value).decode()  # repr may fail: too many digits
            self.printed += [execution.stdout, execution.stderr_tail, value]
        return executions


async def _run_case(
    case: Case, recorder: _Recorder, grader: ExecutionGrader, secret_of_sandbox: str
) -> Outcome:
    secret = secrets.token_hex(16)
    files = files_in_reach() if case.require.no_new_files else set()
    before = processes_of_run()
    recorder.printed.clear()
    unmet: list[str] = []
    with lay_out(secret) as touched:
        started = time.monotonic()
        try:
            verdict = await grader.grade_code(case.problem, case.code)
            name = ACCEPTED if verdict.passed else str(verdict.error)
        except UngradableError as error:
            name = f"no verdict: {error}"
        seconds = time.monotonic() - started
        printed = "\n".join(recorder.printed)
        if left := await left_of(before):
            unmet.append(f"no_leftover_process: {', '.join(left)}")
        then = await _then(case, recorder)
        if hits := touched():
            unmet.append(f"no_listener_hit: {', '.join(hits)}")
    if case.require.no_new_files and (new := sorted(files_in_reach() - files)):
        unmet.append(f"no_new_files: {', '.join(new[:5])}")
    if not await _alive(grader):
        unmet.append("judge_alive: an honest program fails now")
    return Outcome(
        case=case,
        verdict=name,
        seconds=seconds,
        unmet=(
            *_unmet(case.require, name, seconds, printed, then),
            *(
                f"no_canary: {which} secret was seen"
                for which, hidden in (("the", secret), ("a former", secret_of_sandbox))
                if hidden in printed + then
            ),
            *unmet,
        ),
    )


def _unmet(
    require: Require, verdict: str, seconds: float, printed: str, then: str
) -> Iterator[str]:
    if (verdict == ACCEPTED) != (require.reward == 1):
        yield f"reward: {verdict}"
    if verdict not in require.verdict_in:
        yield f"verdict_in: {verdict}"
    if seconds > require.terminate_s:
        yield f"terminate_s: {seconds:.1f}"
    for text in require.forbid_stdout:
        if text in printed:
            yield f"forbid_stdout: {text!r}"
    for text in require.then_forbid_stdout:
        if text in then:
            yield f"then_forbid_stdout: {text!r}"


async def _then(case: Case, recorder: _Recorder) -> str:
    """Return the output of the case's second program, run after the first."""
    if case.then is None:
        return ""
    try:
        executions = await recorder.run(Program(source=case.then), [Stdin("")], case.problem.limits)
    except UngradableError as error:
        return f"no verdict: {error}"
    return "".join(execution.stdout for execution in executions)


async def _alive(grader: ExecutionGrader) -> bool:
    try:
        return (await grader.grade_code(_HONEST_PROBLEM, _HONEST)).passed
    except UngradableError:
        return False
