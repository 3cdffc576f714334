"""One input of a program, run by P: the confined process T, and with asserts a second one, A.

Asserts hold expected values, so P must not: T is forked from P, and what P ever had in memory is there
to be found. Hence T is forked first, and A reads the tests from the host's channel itself.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import FIRST_KEPT, Confinement, Steps, steps
from coding_model_project.sandbox.embedded import (
    argument_files,
    asserts,
    fork_server,
    frames,
    run_program,
)
from coding_model_project.sandbox.embedded.printed import Outputs
from coding_model_project.types import Limits

_MIN_TESTS_MEMORY_MB = 512
"""The tests are ours, so a program's tight limit is not theirs."""

COMPILE_CPU_S = 10

MAX_THREADS = 1000
"""A bomb of threads with tiny stacks is not stopped by memory, and no limit counts root's threads."""

_THREADS_EVERY_S = 0.05

_PROGRAM, _TESTS = 0, 1  # indices in Compiled.confined


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All that can be worked out for a program before it is known; the zygote remembers it."""

    confinement: Confinement
    limits: Limits
    program: Steps
    callee: Steps
    tests: Steps
    served: fork_server.Plan | None
    """The compiled loop's, for a program without files; None without that loop."""


def ready(
    confinement: Confinement, limits: Limits, files_bytes: int, served: fork_server.Plan | None
) -> Ready:
    """The steps for each kind of process that a program may need."""
    roomy = replace(limits, memory_mb=max(limits.memory_mb, _MIN_TESTS_MEMORY_MB))
    return Ready(
        served=served,
        confinement=confinement,
        limits=limits,
        program=steps(confinement, limits, 4, files_bytes),
        callee=steps(confinement, limits, 5, files_bytes),
        tests=steps(confinement, roomy, 6, files_bytes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """All that P knows of its program."""

    code: types.CodeType
    files: dict[str, bytes]
    ready: Ready
    confined: mmap.mmap
    """Bytes shared with T and A, which set theirs and unmap it before anything of an input runs."""


def plan(
    confinement: Confinement, limits: Limits, channel: int, *, single: bool
) -> fork_server.Plan:
    """How the compiled loop runs tests: as `_run_program` does.

    Args:
        channel: the socket to the host.
        single: for programs that come with their only test.
    """
    compiling_s = COMPILE_CPU_S if single else 0  # in the same process
    return fork_server.plan(
        steps(confinement, replace(limits, cpu_s=limits.cpu_s + compiling_s), 4),
        channel,
        single=single,
        clone_flags=confinement.namespaces,
        proc=confinement.proc,
        cpu_s=limits.cpu_s,
        wall_s=limits.wall_s,
        output_bytes=limits.output_kb << 10,
        max_threads=MAX_THREADS,
    )


def of_test(code: types.CodeType, plan: fork_server.Plan, *, stateless: bool = False) -> NoReturn:
    """In a confined process that the compiled loop has made: run the program on what it was given.

    Args:
        stateless: make all calls it was given, not only the first.
    """
    function = fork_server.function(plan)
    if function is None:
        run_program.run_script(code)
    data = fork_server.read_all(0)
    if fork_server.has_calls(plan):
        run_program.run_calls(code, function, data, stateless=stateless)
    run_program.run_call(code, function, data)


def run(channel: socket.socket, compiled: Compiled, head: frames.Head, data: bytes) -> None:
    """Run the program on one input in a process of its own, and send what became of it."""
    compiled.confined[_PROGRAM] = compiled.confined[_TESTS] = 0
    if "asserts" in head:
        cpu_s, wall_s = head["within"]
        limits = replace(compiled.ready.limits, cpu_s=cpu_s, wall_s=wall_s)
        _run_asserts(channel, compiled, head["asserts"], limits)
    elif "arguments" in head:
        tier = compiled.ready.confinement.tier
        _run_on_files(channel, compiled, argument_files.given(tier, head, data))
    else:
        _run_program(channel, compiled, head.get("function"), data)


def _run_program(
    channel: socket.socket, compiled: Compiled, function: str | None, data: bytes
) -> None:
    started = time.monotonic()
    ready = compiled.ready
    outputs = Outputs.create()
    stdin = os.memfd_create("in")
    if function is None:
        os.write(stdin, data)
        os.lseek(stdin, 0, os.SEEK_SET)

    def body() -> NoReturn:
        if function is None:
            run_program.run_script(compiled.code)
        run_program.run_call(compiled.code, function, data)

    pid = _fork(compiled, ready.program, [stdin, *outputs.descriptors], _PROGRAM, body)
    killed = _watch(pid, [pid], ready.limits, ready.confinement.proc, started)
    _, status, usage = os.wait4(pid, 0)
    os.close(stdin)
    _send(channel, compiled, outputs, status, usage, killed, started)


def _run_on_files(channel: socket.socket, compiled: Compiled, given: argument_files.Given) -> None:
    started = time.monotonic()
    outputs = Outputs.create()
    null = os.open("/dev/null", os.O_RDONLY)

    def body() -> NoReturn:
        sys.argv[1:] = given.paths
        run_program.run_script(compiled.code)

    descriptors = [null, *outputs.descriptors, *given.descriptors]
    compiled = replace(compiled, files={**compiled.files, **given.files})
    n_bytes = sum(map(len, compiled.files.values()))
    ready = compiled.ready
    ways = steps(ready.confinement, ready.limits, len(descriptors), n_bytes)
    pid = _fork(compiled, ways, descriptors, _PROGRAM, body)
    for fd in (null, *given.descriptors):
        os.close(fd)
    killed = _watch(pid, [pid], ready.limits, ready.confinement.proc, started)
    _, status, usage = os.wait4(pid, 0)
    _send(channel, compiled, outputs, status, usage, killed, started)


def _run_asserts(
    channel: socket.socket, compiled: Compiled, entry_point: str | None, limits: Limits
) -> None:
    started = time.monotonic()
    proc = compiled.ready.confinement.proc
    outputs = Outputs.create()
    null = os.open("/dev/null", os.O_RDWR)
    to_tests, to_program = os.pipe(), os.pipe()

    def of_program() -> NoReturn:
        run_program.run_callee(compiled.code)

    descriptors = [null, *outputs.descriptors[:2], to_program[0], to_tests[1]]
    pid = _fork(compiled, compiled.ready.callee, descriptors, _PROGRAM, of_program)

    def of_tests() -> NoReturn:
        asserts.run(source, entry_point, compiled.ready.limits.output_kb << 10)

    descriptors = [null, null, null, outputs.answer, to_tests[0], to_program[1]]
    _place(descriptors)
    tester = linux.fork(compiled.ready.confinement.namespaces)
    if tester == 0:
        with suppress(BaseException):
            _, source = frames.receive(channel)
            _confined(compiled, compiled.ready.tests, _TESTS, of_tests)
        os._exit(1)
    _unplace(descriptors)
    for fd in (null, *to_tests, *to_program):
        os.close(fd)
    killed = _watch(tester, [pid, tester], limits, proc, started)
    os.waitpid(tester, 0)
    if not compiled.confined[_TESTS]:
        raise RuntimeError("the tests could not be confined")  # ends P: not the program's doing
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        status = 0  # it was waiting for calls when the tests ended
    _send(channel, compiled, outputs, status, usage, killed, started)


# ── processes ─────────────────────────────────────────────────────────────────────────────────────


def _fork(
    compiled: Compiled,
    steps: Steps,
    descriptors: Sequence[int],
    index: int,
    body: Callable[[], NoReturn],
) -> int:
    """Start a confined process; returns its id, in this process only."""
    _reseed()
    _place(descriptors)
    pid = linux.fork(compiled.ready.confinement.namespaces)
    if pid == 0:
        _confined(compiled, steps, index, body)
    _unplace(descriptors)
    return pid


def _reseed() -> None:
    """Every test would else draw the numbers of its siblings. Done here, it costs a test nothing."""
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()


def _place(descriptors: Sequence[int]) -> None:
    """Put descriptors where a process to be forked expects them (`confine.steps`)."""
    for i, descriptor in enumerate(descriptors):
        os.dup2(descriptor, FIRST_KEPT + i)


def _unplace(descriptors: Sequence[int]) -> None:
    os.closerange(FIRST_KEPT, FIRST_KEPT + len(descriptors))


def _confined(
    compiled: Compiled, steps: Steps, index: int, body: Callable[[], NoReturn]
) -> NoReturn:
    """Confine this process, say so, and run the body."""
    try:
        steps.take(compiled.files)
        compiled.confined[index] = 1
        compiled.confined.close()
    except BaseException:  # noqa: BLE001 - not confined, for whatever reason: never run it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    body()


def links(proc: int | None, path: str) -> int:
    """Of `PID/task`, which has a link for each thread; 0 if it cannot be seen."""
    if proc is None:
        return 0
    with suppress(OSError):
        return os.stat(path, dir_fd=proc).st_nlink
    return 0


def _watch(
    pid: int, clocked: Sequence[int], limits: Limits, proc: int | None, started: float
) -> str | None:
    """Wait until a process ends, and end it when a limit is reached; it is not reaped.

    Args:
        clocked: processes whose CPU time, by their own clocks, and threads are limited.
        limits: of these, CPU and wall time.
        proc: a descriptor of /proc, if threads can be counted.

    Returns:
        The limit: "cpu", "wall", "threads", or None if it ended by itself.
    """
    clocks = [(~process << 3) | 2 for process in clocked]  # see clock_getcpuclockid(3)
    tasks = [f"{process}/task" for process in clocked]
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    killed = None
    while killed is None:
        cpu_left_s = limits.cpu_s
        for clock in clocks:
            with suppress(OSError):
                cpu_left_s = min(cpu_left_s, limits.cpu_s - time.clock_gettime(clock))
        wall_left_s = limits.wall_s - (time.monotonic() - started)
        if cpu_left_s <= 0:
            killed = "cpu"
        elif wall_left_s <= 0:
            killed = "wall"
        elif poll.poll(1 + int(1000 * min(wall_left_s, max(cpu_left_s, 0.002), _THREADS_EVERY_S))):
            break
        elif any(links(proc, path) > MAX_THREADS for path in tasks):
            killed = "threads"
    os.close(pidfd)
    if killed:
        os.kill(pid, signal.SIGKILL)
    return killed


def _send(
    channel: socket.socket,
    compiled: Compiled,
    outputs: Outputs,
    status: int,
    usage: Any,
    killed: str | None,
    started: float,
) -> None:
    confined = compiled.confined[_PROGRAM] == 1
    outputs.send(channel, compiled.ready.limits, confined, status, usage, killed, started)
