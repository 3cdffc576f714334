"""A sandbox of forked processes, for places where the embedded sandbox has no tier, such as a room.

A room forbids namespaces and memory files. It confines the processes that its verifier hands over
(`forker`): they can neither read /tests nor write /logs/verifier. In a container whose verifier is root,
programs run as `nobody`. There is no other isolation.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from coding_model_project.control_groups import oom_kills
from coding_model_project.errors import OverloadError, SandboxError
from coding_model_project.harbor.posttrain.verifier import forked_runner
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded.outcomes import (
    Ended,
    continues,
    execution,
    request,
    syntax_error,
)
from coding_model_project.types import Execution, Files, Input, Limits, Program, Status

_PACKAGES = Path(__file__).parents[4]
"""The parent folder of this package: the agent's evaluate.py runs without `PYTHONPATH`."""

_SPARE_S = 60.0
"""Seconds beyond an input's limit until its runner is killed."""


class ForkedSandbox:
    """A sandbox of forked processes; see `sandbox.base.Sandbox`. Python only; inputs share no state."""

    identity = f"forked/cpython-{sys.version_info.major}.{sys.version_info.minor}"

    def __init__(self, workers: int | None = None) -> None:
        self._slots = asyncio.Semaphore(workers or os.cpu_count() or 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """See `Sandbox.run`."""
        if program.language != "python":
            raise SandboxError(f"language={program.language}: the forked sandbox runs only python")
        async with self._slots:
            return await asyncio.to_thread(_run, program, inputs, limits, stop_when)


def _run(
    program: Program, inputs: Sequence[Input], limits: Limits, stop_when: StopWhen | None
) -> list[Execution]:
    """Run a program on inputs in a runner of its own.

    Raises:
        SandboxError: the runner did not start, or ended before any program ran.
    """
    source = program.source.encode("utf-8", "surrogatepass")
    head = {"source": b64encode(source).decode(), "limits": asdict(limits)}
    found: list[Execution] = []
    n_killed = oom_kills()
    with subprocess.Popen(
        [sys.executable, "-s", "-P", "-B", "-m", forked_runner.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=os.environ | {"PYTHONPATH": f"{_PACKAGES}:{os.environ.get('PYTHONPATH', '')}"},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, head)
            for index, given in enumerate(inputs):
                late = threading.Timer(limits.wall_s + _SPARE_S, process.kill)
                late.start()
                try:
                    _send(process.stdin, _asked(given, limits))
                    line = process.stdout.readline()
                finally:
                    late.cancel()
                found.append(_execution(given, line, limits))
                if found[-1].status is Status.killed and oom_kills() > n_killed:
                    raise OverloadError(
                        "the machine ran out of memory: the kernel killed a program"
                    )
                if stop_when is not None and stop_when(index, found[-1]):
                    break
        except OSError as error:
            if not found:
                raise SandboxError(f"the forked sandbox's runner did not start: {error}") from error
            found += (_execution(given, b"", limits) for given in inputs[len(found) :])
        finally:
            process.kill()
            with suppress(OSError):  # flushes to a runner that has ended
                process.stdin.close()
    return found


def _send(stream: Any, value: Any) -> None:
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def _asked(given: Input, limits: Limits) -> list[Any]:
    if isinstance(given, Files) or continues(given):
        raise SandboxError("the forked sandbox runs only scripts, calls and single asserts")
    head, body = request(given, limits)
    return [head, body.decode("utf-8", "surrogatepass")]


def _execution(given: Input, line: bytes, limits: Limits) -> Execution:
    """Return an input's execution. Only the program can have ended its runner, so that is a failure."""
    outcome = json.loads(line) if line else {"exit": -9, "stderr": "the program ended its judge"}
    if "refused" in outcome:
        return syntax_error(outcome["refused"])
    printed, answered = (b64decode(outcome.pop(name, "")) for name in ("printed", "answered"))
    ended = Ended(confined=True, printed=printed, answered=answered, **outcome)
    return execution(given, ended, limits)
