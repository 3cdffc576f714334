"""The process all sandboxed programs are forked from. Runs only trusted code itself.

    zygote (preloaded, single-threaded)
      └ P, one per program: compiles the source, never runs it; a syntax error is decided here
          └ T, one per input: confined, then runs the program

One input at a time: a program never holds an input it has not been asked about. No expected output
comes here at all. Started by `supervisor` as `-m …zygote FD TIER`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import random
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
import types
from typing import Any, NoReturn

# Preloaded for programs: each import here saves every test the time of its own.
import bisect, collections, copy, decimal, fractions, functools, heapq, io, itertools, json  # noqa: E401, F401, I001
import math, operator, re, string, typing, statistics, dataclasses, enum, abc, datetime  # noqa: E401, F401
import encodings.ascii, encodings.latin_1, encodings.utf_8, encodings.idna  # noqa: E401, F401

from coding_model_project import codec
from coding_model_project.sandbox.embedded import frames, linux
from coding_model_project.sandbox.embedded.confine import (
    Confinement,
    Tier,
    confine,
    prepare,
    remember_statm,
)
from coding_model_project.sandbox.embedded.zygote_codes import (
    COULD_NOT_CONFINE,
    NO_ANSWER,
    OUT_OF_MEMORY,
)
from coding_model_project.types import Limits

_STDERR_TAIL = 2000
_COMPILE_CPU_S = 20


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    linux.die_with_parent()
    remember_statm()
    confinement = prepare(Tier(sys.argv[2]))
    linux.adopt_orphans()
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", LANG="C.UTF-8", HOME="/tmp", PYTHONHASHSEED="0")
    sys.argv[:] = ["main.py"]
    gc.collect()
    gc.freeze()
    frames.send(channel, {"ready": True})
    while True:
        try:
            head, source = frames.receive(channel)
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                _program(channel, confinement, head, source)
            except EOFError:
                pass
            except BaseException:
                traceback.print_exc()
                code = 1
            os._exit(code)
        os.waitpid(pid, 0)
        _reap_orphans()
        frames.send(channel, {"done": True})


def _reap_orphans() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as file:
        for child in file.read().split():
            os.kill(int(child), signal.SIGKILL)


# ── P ─────────────────────────────────────────────────────────────────────────────────────────────


def _program(
    channel: socket.socket, confinement: Confinement, head: dict[str, Any], source: bytes
) -> None:
    linux.die_with_parent()
    linux.hide_memory()
    limits = Limits(**head["limits"])
    resource.setrlimit(resource.RLIMIT_CPU, (_COMPILE_CPU_S, _COMPILE_CPU_S + 1))
    try:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        reason = f"{type(error).__name__}: {error}"
        frames.send(channel, {"syntax_error": reason[:500]})
        return
    frames.send(channel, {"compiled": True})
    while True:
        head, data = frames.receive(channel)
        if "end" in head:
            return
        _test(channel, confinement, limits, code, head, data)


def _test(
    channel: socket.socket,
    confinement: Confinement,
    limits: Limits,
    code: types.CodeType,
    head: dict[str, Any],
    data: bytes,
) -> None:
    """Run the program on one input in a process of its own, and send what became of it."""
    started = time.monotonic()
    function = head.get("function")
    stdin, out, err, answer = (os.memfd_create(name) for name in ("in", "out", "err", "answer"))
    if function is None:
        os.write(stdin, data)
        os.lseek(stdin, 0, os.SEEK_SET)
    pid = linux.fork(confinement.namespaces)
    if pid == 0:
        try:
            confine(confinement, limits, [stdin, out, err, answer])
            random.seed()
        except BaseException:
            os._exit(COULD_NOT_CONFINE)
        _run(code, function, data)
    status, usage, killed = _watch(pid, limits, started)
    wall_s = time.monotonic() - started
    stdout, n_stdout = _content(out, limits.output_kb << 10)
    answered, n_answer = _content(answer, limits.output_kb << 10)
    size = os.fstat(err).st_size
    tail = os.pread(err, _STDERR_TAIL, max(0, size - _STDERR_TAIL))
    for fd in (stdin, out, err, answer):
        os.close(fd)
    result = {
        "exit": os.waitstatus_to_exitcode(status),
        "killed": killed,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": wall_s,
        "peak_memory_mb": usage.ru_maxrss / 1024,
        "full": max(n_stdout, n_answer, size) >= limits.output_kb << 10,
        "stderr": tail.decode("utf-8", "replace"),
        "n_stdout": len(stdout),
    }
    frames.send(channel, result, stdout + answered)


def _content(fd: int, limit: int) -> tuple[bytes, int]:
    size = os.fstat(fd).st_size
    return os.pread(fd, min(size, limit), 0), size


def _watch(pid: int, limits: Limits, started: float) -> tuple[int, Any, str | None]:
    """Wait for a test; end it when its CPU time (by its own clock) or the wall time is over."""
    clock = (~pid << 3) | 2  # the process's CPU clock, see clock_getcpuclockid(3)
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    killed = None
    while killed is None:
        try:
            cpu_left_s = limits.cpu_s - time.clock_gettime(clock)
        except OSError:
            cpu_left_s = limits.cpu_s
        wall_left_s = limits.wall_s - (time.monotonic() - started)
        if cpu_left_s <= 0:
            killed = "cpu"
        elif wall_left_s <= 0:
            killed = "wall"
        elif poll.poll(1 + int(1000 * min(wall_left_s, max(cpu_left_s, 0.002)))):
            break
    os.close(pidfd)
    if killed:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return status, usage, killed


# ── T ─────────────────────────────────────────────────────────────────────────────────────────────


def _run(code: types.CodeType, function: str | None, data: bytes) -> NoReturn:
    exit_code = 0
    try:
        if function is None:
            module = types.ModuleType("__main__")
            sys.modules["__main__"] = module
            exec(code, module.__dict__)
        else:
            _answer(code, function, data)
    except SystemExit as error:
        exit_code = _exit_code(error.code)
        if function is not None:
            exit_code = exit_code or NO_ANSWER
    except MemoryError:
        exit_code = OUT_OF_MEMORY
    except BaseException:
        exit_code = 1
        with contextlib.suppress(BaseException):
            traceback.print_exc(limit=-3)
    _finish(exit_code)


def _answer(code: types.CodeType, name: str, data: bytes) -> None:
    """Call the program's function and write its value, as plain data, to descriptor 3."""
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    exec(code, module.__dict__)
    if "." in name:
        owner, _, method = name.partition(".")
        function = getattr(getattr(module, owner)(), method)
    elif hasattr(module, name):
        function = getattr(module, name)
    elif hasattr(module, "Solution"):
        function = getattr(module.Solution(), name)
    else:
        raise NameError(f"the program defines no {name}")
    value = function(*codec.loads(data))  # type: ignore[misc]
    os.write(3, codec.dumps(value))


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    return code & 255 if type(code) is int else 1


def _finish(exit_code: int) -> NoReturn:
    """End as an interpreter would (threads, exit handlers, buffers), without returning to our frames."""
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        with contextlib.suppress(BaseException):
            step()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            exit_code = exit_code or 120
    os._exit(exit_code)


if __name__ == "__main__":
    main()
