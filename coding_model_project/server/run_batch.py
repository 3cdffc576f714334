"""/run_batch over a `Sandbox`: many programs, with many inputs each, in one request."""

from __future__ import annotations

import time
from dataclasses import fields

from coding_model_project import codec
from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.fusion import wire
from coding_model_project.server.requests import (
    BatchExecution,
    BatchInput,
    BatchOutcome,
    BatchProgram,
    BatchRequest,
    BatchResponse,
    decoded,
)
from coding_model_project.server.run_code import Bounds
from coding_model_project.types import Asserts, Call, Execution, Files, Input, Program, Stdin

_MOST_BYTES = 8 << 20
"""Size of an answer after which no further input is started."""


async def run_batch(request: BatchRequest, sandbox: Sandbox, bounds: Bounds) -> BatchResponse:
    """Run a request's programs one after another, at least the first, until its budget is spent."""
    budget = _Budget(request.budget_s)
    outcomes: list[BatchOutcome] = []
    for program in request.programs:
        if outcomes and budget.is_spent:
            break
        outcomes.append(await _outcome(program, sandbox, bounds, budget))
    identity = sandbox.identity.partition("/")[2]
    return BatchResponse(identity=identity, programs=outcomes)


async def _outcome(
    one: BatchProgram, sandbox: Sandbox, bounds: Bounds, budget: _Budget
) -> BatchOutcome:
    try:
        bounds.check(one.limits)
        inputs = [_input(given) for given in one.inputs]
        program = Program(source=one.source, language=one.language, files=decoded(one.files))

        def stop(index: int, execution: Execution) -> bool:
            budget.spend(execution)
            following = inputs[index + 1 : index + 2]  # it may need the state that this one leaves
            return budget.is_spent and not any(
                isinstance(given, Asserts) and given.continues for given in following
            )

        executions = await sandbox.run(program, inputs, one.limits, stop_when=stop)
    except SandboxError as error:
        return BatchOutcome(lost=str(error))
    except (ConfigError, DataError) as error:
        if isinstance(error, ConfigError) and one.language != "python":
            return BatchOutcome(lost=f"{wire.NO_TOOLCHAIN} {one.language}: {error}")
        return BatchOutcome(error=(type(error).__name__, str(error)))
    return BatchOutcome(executions=list(map(_to_json, executions)))


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
        case ("call", function, arguments):
            try:
                args = codec.loads(arguments.encode())
            except ValueError as error:
                raise DataError(f"the arguments of {function}: {error}") from error
            if not isinstance(args, tuple):
                raise DataError(f"the arguments of {function} are no tuple")
            return Call(function=function, args=args)
        case ("asserts", source, entry_point, continues):
            return Asserts(source=source, entry_point=entry_point, continues=continues)
        case ("files", contents):
            return Files(contents=contents)
    raise AssertionError(given)


_FIELDS = tuple(field.name for field in fields(Execution))


def _to_json(execution: Execution) -> BatchExecution:
    found = {name: getattr(execution, name) for name in _FIELDS}
    return BatchExecution(**{**found, "value": codec.dumps(execution.value).decode()})
