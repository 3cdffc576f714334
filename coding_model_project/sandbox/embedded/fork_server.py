"""The interface of the compiled loop that forks a process per test, `fork_server.c`.

It halves the cost of a test and is optional: without a C compiler, `inputs` does the same in Python.
`slot` compiles it.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import (
    FIRST_KEPT,
    NO_FILES,
    SCRATCH,
    Confinement,
    Limits,
    empty_scratch,
    steps,
)

COMPILE_CPU_S = 10
MAX_THREADS = 1000
"""Most threads of a process: memory does not stop many tiny threads, and no rlimit counts root's."""

_MAX_HEAD = 512
SOURCE_FD = FIRST_KEPT + 4
"""Descriptor of a single's source in its process, until that is confined."""


UNHANDLED, SCRIPT, CALL, ASTRAY = 0, 1, 2, 3
"""Reasons for which `ForkServer.serve` returns: the next frame is not for it; this is now a test's
process, which runs a script or calls a function; a program with its only test left processes behind.
Not an enum: a test's process would touch pages to make one."""


class _Step(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int64), ("arguments", ctypes.c_int64 * 6))


class Plan(ctypes.Structure):
    """Instructions of `serve` for each test: the C structure `plan`."""

    _fields_ = (
        ("channel", ctypes.c_int32),
        ("proc", ctypes.c_int32),
        ("first_kept", ctypes.c_int32),
        ("single", ctypes.c_int32),
        ("clone_flags", ctypes.c_int64),
        ("output_bytes", ctypes.c_int64),
        ("max_threads", ctypes.c_int64),
        ("n_steps", ctypes.c_int64),
        ("n_own_pid", ctypes.c_int64),
        ("n_reseed", ctypes.c_int64),
        ("n_renewal", ctypes.c_int64),
        ("cpu_s", ctypes.c_double),
        ("wall_s", ctypes.c_double),
        ("steps", ctypes.POINTER(_Step)),
        ("own_pid", ctypes.POINTER(ctypes.c_void_p)),
        ("reseed", ctypes.POINTER(ctypes.py_object)),
        ("renewal", ctypes.POINTER(_Step)),
        ("scratch", ctypes.c_char_p),
        ("head", ctypes.c_char * _MAX_HEAD),
    )

    kept: tuple[Any, ...]
    """Targets of its pointers, kept alive."""


class ForkServer:
    """The compiled loop, loaded into this process."""

    def __init__(self, path: str) -> None:
        """Load the library; raise OSError if it does not load."""
        loaded = ctypes.PyDLL(path)  # keeps the GIL: it forks, and calls into the interpreter
        self._serve = loaded.fork_server_serve
        self._confine = loaded.fork_server_confine
        self._refuse = loaded.fork_server_refuse
        self.collapse: Callable[[], object] = loaded.fork_server_collapse

    def serve(self, plan: Plan) -> int:
        """Serve tests of a plan until another kind of frame comes, which stays unread.

        Raises:
            EOFError: the channel is closed.
            OSError: a test could not be started, or its outcome not sent.
        """
        result: int = self._serve(ctypes.byref(plan))
        if result >= 0:
            return result
        if result == -errno.EPIPE:
            raise EOFError("the other side closed")
        raise OSError(-result, os.strerror(-result), "fork server")

    def confine(self, plan: Plan) -> None:
        """Confine this test's process, or end it."""
        self._confine(ctypes.byref(plan))

    def refuse(self, plan: Plan, why: str) -> None:
        """End this test's process: its source does not compile."""
        self._refuse(ctypes.byref(plan), ctypes.c_char_p(why.encode("utf-8", "replace")))


def plan(confinement: Confinement, limits: Limits, channel: int, *, single: bool) -> Plan:
    """Return a plan for tests without files, which `inputs` runs alike.

    Args:
        channel: descriptor of the socket to the host.
        single: whether programs come with their only test, in whose process they are compiled.
    """
    cpu_s = limits.cpu_s + (COMPILE_CPU_S if single else 0)
    shares, flags = confinement.has_common_scratch, confinement.namespaces
    taken = steps(confinement, limits._replace(cpu_s=cpu_s), 4, None if shares else NO_FILES)
    calls = [*taken.enter, *taken.restrict]
    renewal = [linux.unmounting(SCRATCH), empty_scratch()] if shares else []
    places: tuple[ctypes.c_uint32, ...] = ()
    if taken.filter is not None:
        calls.append(taken.filter.call)
        places = taken.filter.own_pid
    made, renewing = _steps(calls), _steps(renewal)
    own_pid = (ctypes.c_void_p * len(places))(*map(ctypes.addressof, places))
    drawing = _reseed()
    reseed = (ctypes.py_object * len(drawing))(*drawing)
    planned = Plan(
        channel=channel,
        proc=-1 if confinement.proc is None else confinement.proc,
        first_kept=FIRST_KEPT,
        single=single,
        clone_flags=flags & ~linux.CLONE_NEWNS if shares else flags,
        output_bytes=limits.output_kb << 10,
        max_threads=MAX_THREADS,
        n_steps=len(calls),
        n_own_pid=len(places),
        n_reseed=len(drawing),
        n_renewal=len(renewal),
        cpu_s=limits.cpu_s,
        wall_s=limits.wall_s,
        steps=made,
        own_pid=own_pid,
        reseed=reseed,
        renewal=renewing,
        scratch=SCRATCH.encode(),
    )
    planned.kept = (taken, made, own_pid, drawing, reseed, renewal, renewing)
    return planned


def _steps(calls: Sequence[linux.SystemCall]) -> ctypes.Array[_Step]:
    return (_Step * len(calls))(*map(_step, calls))


def _step(call: linux.SystemCall) -> _Step:
    number, *arguments = map(_value, call.arguments)
    return _Step(number, (ctypes.c_int64 * 6)(*arguments))


def _value(argument: Any) -> int:
    if isinstance(argument, ctypes.Array):
        return ctypes.addressof(argument)
    return argument.value or 0


def _reseed() -> list[Callable[[], object]]:
    """Return the calls that give each test its own random numbers, as in a new interpreter.

    They go straight to C, past `random.seed`: Python would touch pages here for each test.
    """
    calls: list[Callable[[], object]] = []
    if "random" in sys.modules:
        import _random

        own = sys.modules["random"]._inst
        calls.append(functools.partial(_random.Random.seed, own, None))
    if "numpy.random" in sys.modules:
        calls.append(sys.modules["numpy.random"].seed)
    return calls


def function(plan: Plan) -> str:
    """Return the name of the function to call, in the process of a test that is a call."""
    return json.loads(plan.head)["function"]


def read_all(descriptor: int) -> bytes:
    """Return the content of an in-memory file, without open(), which touches 30 more pages."""
    return os.pread(descriptor, os.lseek(descriptor, 0, os.SEEK_END), 0)
