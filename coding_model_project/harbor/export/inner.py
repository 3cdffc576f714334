"""A process of one test in an exported task: runs a program, calls it, or tests it.

The program's own process knows neither expected values nor tests. Each mode's input and output are in
`sandbox.embedded.run_program` and `sandbox.embedded.asserts`.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from coding_model_project.harbor.export import kernel
from coding_model_project.harbor.export.forker import Job, Request
from coding_model_project.sandbox.embedded import asserts, run_program

PROGRAM_FILE = "solution.py"
_SYNTAX_ERROR = 1


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
