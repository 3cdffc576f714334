"""The loop that forks a process per test, compiled: `fork_server.c`, and its ways in and out.

It halves what a test costs and is optional: where there is no C compiler, `one_test` does the same in
Python. Compiled once, in less than a second, and kept in the user's cache.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import FIRST_KEPT, Steps
from coding_model_project.sandbox.embedded.languages import binaries

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ("-O2", "-shared", "-fPIC", "-Wl,-z,now")
_BUILD_S = 60.0
_MAX_HEAD = 512
SOURCE_FD = FIRST_KEPT + 4
"""Where a single's source lies in its process until that is confined."""


@functools.lru_cache
def library() -> Path | None:
    """The compiled loop, compiled now if it has to be; None where it cannot."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    told = Path(compiler).resolve().stat()
    made_from = (SOURCE.read_bytes(), compiler, told.st_size, told.st_mtime_ns, FLAGS)
    path = (
        binaries.cache_folder()
        / f"fork_server-{hashlib.sha256(repr(made_from).encode()).hexdigest()}.so"
    )
    if path.exists():
        return path
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
            made = Path(folder) / path.name
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=_BUILD_S)
            ctypes.PyDLL(str(made))  # does it load?
            with made.open("rb") as file:
                os.fsync(file.fileno())  # or a power cut would leave the name without the content
            made.replace(path)
    except (OSError, subprocess.SubprocessError):
        return None
    return path


def summary() -> str:
    """How tests are forked here, in words."""
    if library() is not None:
        return "by compiled code"
    return "by Python code: with a C compiler (apt-get install gcc libc6-dev) they would cost less"


UNHANDLED, TEST, ASTRAY = 0, 1, 2
"""Why `ForkServer.serve` returned: the next frame is not for it; this is a test's process now; a program
that came alone left processes behind. No enum: a test's process would touch pages to make one."""


class _Step(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int64), ("arguments", ctypes.c_int64 * 6))


class Plan(ctypes.Structure):
    """What `serve` does with each test; as the structure of that name in C."""

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
        ("cpu_s", ctypes.c_double),
        ("wall_s", ctypes.c_double),
        ("steps", ctypes.POINTER(_Step)),
        ("own_pid", ctypes.POINTER(ctypes.c_void_p)),
        ("reseed", ctypes.POINTER(ctypes.py_object)),
        ("head", ctypes.c_char * _MAX_HEAD),
    )

    kept: tuple[Any, ...]
    """What its pointers lead to."""


class ForkServer:
    """The compiled loop, loaded into this process."""

    def __init__(self, path: str) -> None:
        """Raises OSError if it does not load."""
        loaded = ctypes.PyDLL(path)  # keeps the GIL: it forks, and calls into the interpreter
        self._serve = loaded.fork_server_serve
        self._confine = loaded.fork_server_confine
        self._refuse = loaded.fork_server_refuse

    def serve(self, plan: Plan) -> int:
        """Serve tests of a plan until a frame comes that is none, and leave that unread.

        Raises:
            EOFError: the channel is closed.
            OSError: a test could not be started, or what became of it not sent.
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


def plan(
    steps: Steps,
    channel: int,
    *,
    single: bool,
    clone_flags: int,
    proc: int | None,
    cpu_s: float,
    wall_s: float,
    output_bytes: int,
    max_threads: int,
) -> Plan:
    """A plan for tests without files.

    Args:
        channel: descriptor of the socket to the host.
        single: whether it serves programs that come with their only test.
        clone_flags: new namespaces of each test.
        proc: a descriptor of /proc, if threads can be counted.
    """
    calls = [*steps.enter, *steps.restrict]
    places: tuple[ctypes.c_uint32, ...] = ()
    if steps.filter is not None:
        calls.append(steps.filter.call)
        places = steps.filter.own_pid
    made = (_Step * len(calls))(*(_step(call) for call in calls))
    own_pid = (ctypes.c_void_p * len(places))(*map(ctypes.addressof, places))
    drawing = _reseed()
    reseed = (ctypes.py_object * len(drawing))(*drawing)
    planned = Plan(
        channel=channel,
        proc=-1 if proc is None else proc,
        first_kept=FIRST_KEPT,
        single=single,
        clone_flags=clone_flags,
        output_bytes=output_bytes,
        max_threads=max_threads,
        n_steps=len(calls),
        n_own_pid=len(places),
        n_reseed=len(drawing),
        cpu_s=cpu_s,
        wall_s=wall_s,
        steps=made,
        own_pid=own_pid,
        reseed=reseed,
    )
    planned.kept = (steps, made, own_pid, drawing, reseed)
    return planned


def _step(call: linux.SystemCall) -> _Step:
    number, *arguments = map(_value, call.arguments)
    return _Step(number, (ctypes.c_int64 * 6)(*arguments))


def _value(argument: Any) -> int:
    if isinstance(argument, ctypes.Array):
        return ctypes.addressof(argument)
    return argument.value or 0


def _reseed() -> list[Callable[[], object]]:
    """What gives each test random numbers of its own, as a new interpreter has them.

    Straight to C, past `random.seed`: each page that Python touches here is touched per test.
    """
    calls: list[Callable[[], object]] = []
    if "random" in sys.modules:
        import _random

        own = sys.modules["random"]._inst
        calls.append(functools.partial(_random.Random.seed, own, None))
    if "numpy.random" in sys.modules:
        calls.append(sys.modules["numpy.random"].seed)
    return calls


def function(plan: Plan) -> str | None:
    """In a test's process: which function to call; None for a script."""
    head = plan.head
    return json.loads(head).get("function") if b"function" in head else None


def read_all(descriptor: int) -> bytes:
    """A file in memory, from where it stands."""
    with open(descriptor, "rb", closefd=False, buffering=0) as file:
        return file.readall()
