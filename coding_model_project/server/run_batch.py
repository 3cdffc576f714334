"""/run_batch over a `Sandbox`: many programs, with many inputs each, in one request."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from coding_model_project import codec
from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.carried.messages import is_continued
from coding_model_project.sandbox.fusion import wire
from coding_model_project.server.requests import (
    BatchInput,
    BatchProgram,
    BatchRequest,
    RunStatus,
    decoded,
)
from coding_model_project.server.run_code import Bounds
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Files,
    Input,
    Program,
    Status,
    Stdin,
)

_USED_UP = frozenset(
    {
        Status.cpu_timeout,
        Status.wall_timeout,
        Status.memory_limit,
        Status.output_limit,
        Status.killed,
    }
)
_MOST_BYTES = 8 << 20
"""Size of an answer after which no further input is started."""


async def run_batch(request: BatchRequest, sandbox: Sandbox, bounds: Bounds) -> dict[str, Any]:
    """Run a request's programs one after another, at least the first, until its budget is spent.

    Returns:
        The answer as JSON: `identity`, the tier and interpreter, such as "seccomp/cpython-3.11"; and
        `programs`, the outcomes of the first programs, each with `executions` of its first inputs;
        `lost`, a failure of the sandbox or of this machine, after which another server may run the
        program; and `error`, name and message of the exception (`errors`) because of which none can.
    """
    budget = _Budget(request.budget_s)
    outcomes: list[dict[str, Any]] = []
    for program in request.programs:
        if outcomes and budget.is_spent:
            break
        found = await _outcome(program, sandbox, bounds, budget)
        outcomes.append({"executions": [], "lost": None, "error": None} | found)
    return {"identity": sandbox.identity.partition("/")[2], "programs": outcomes}


def status_of(outcome: Mapping[str, Any]) -> RunStatus:
    """Return the status that /run_code would answer."""
    if outcome["lost"] is not None:
        return "SandboxError"
    finished = all(one["status"] is Status.finished for one in outcome["executions"])
    return "Success" if finished and not outcome["error"] else "Failed"


async def _outcome(
    one: BatchProgram, sandbox: Sandbox, bounds: Bounds, budget: _Budget
) -> dict[str, Any]:
    try:
        bounds.check(one.limits)
        inputs = [_input(given) for given in one.inputs]
        program = Program(source=one.source, language=one.language, files=decoded(one.files))

        def stop(index: int, execution: Execution) -> bool:
            budget.spend(execution)
            if execution.status in _USED_UP:  # its processes have ended, with their state
                return one.pauses or budget.is_spent
            return budget.is_spent and not is_continued(inputs, index)

        executions = await sandbox.run(program, inputs, one.limits, stop_when=stop)
    except SandboxError as error:
        return {"lost": str(error)}
    except (ConfigError, DataError) as error:
        if isinstance(error, ConfigError) and one.language != "python":
            return {"lost": f"{wire.NO_TOOLCHAIN} {one.language}: {error}"}
        return {"error": (type(error).__name__, str(error))}
    return {"executions": list(map(_to_json, executions))}


class _Budget:
    """The seconds and bytes after which no further input is started."""

    def __init__(self, seconds: float) -> None:
        self._until, self._bytes = time.monotonic() + seconds, 0

    @property
    def is_spent(self) -> bool:
        return time.monotonic() > self._until or self._bytes > _MOST_BYTES

    def spend(self, execution: Execution) -> None:
        self._bytes += len(execution.stdout) + len(codec.dumps(execution.value))


def _input(given: BatchInput) -> Input:
    """Return an input.

    Raises:
        DataError: its arguments are not encoded values.
    """
    match given:
        case ("stdin", text):
            return Stdin(text)
        case ("call", function, arguments, *continues):
            try:
                args = codec.loads(arguments.encode())
            except ValueError as error:
                raise DataError(f"the arguments of {function}: {error}") from error
            if not isinstance(args, tuple):
                raise DataError(f"the arguments of {function} are no tuple")
            return Call(function=function, args=args, continues=bool(continues))
        case ("asserts", source, entry_point, continues):
            return Asserts(source=source, entry_point=entry_point, continues=continues)
        case ("files", contents):
            return Files(contents=contents)
    raise AssertionError(given)


_FIELDS = tuple(field.name for field in fields(Execution))


def _to_json(execution: Execution) -> dict[str, Any]:
    plain = {name: getattr(execution, name) for name in _FIELDS}
    return plain | {"value": codec.dumps(execution.value).decode()}
