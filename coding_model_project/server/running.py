"""How requests of /run_code and /run_batch are run; and those of /run_batch themselves."""

from __future__ import annotations

import base64
import json
import math
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat

from coding_model_project import codec
from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.carried.messages import is_continued
from coding_model_project.sandbox.fusion import wire
from coding_model_project.sandbox.fusion.wire import (
    PhaseResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
)
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Files,
    Input,
    Limits,
    Program,
    Status,
    Stdin,
)

# ── /run_batch ────────────────────────────────────────────────────────────────────────────────────

BatchInput = (
    tuple[Literal["stdin"], str]
    | tuple[Literal["call"], str, str]
    | tuple[Literal["call"], str, str, Literal[True]]
    | tuple[Literal["asserts"], str, str | None, bool]
    | tuple[Literal["files"], dict[str, str]]
)
"""An input: text; a function, its arguments, by `codec`, and true if it continues the call before; tests,
their entry point, and whether they continue the ones before; files by name."""


class BatchProgram(BaseModel):
    source: str
    language: str = "python"
    files: dict[str, str] = {}
    limits: Limits
    inputs: list[BatchInput]
    pauses: bool = False
    """Start no further input after one that used up a limit: the client may not need it."""


class BatchRequest(BaseModel):
    programs: list[BatchProgram]
    budget_s: FiniteFloat
    """Wall seconds after which no further input is started, except the first."""


def decoded(files: Mapping[str, str | None]) -> dict[str, bytes]:
    """Return a request's files, decoded.

    Raises:
        DataError: the content of one is not base64.
    """
    found = {}
    for name, content in files.items():
        if content is None:
            continue
        try:
            found[name] = base64.b64decode(content)
        except ValueError as error:
            raise DataError(f"files[{name!r}] is not base64: {error}") from error
    return found


_COMPILED = frozenset(
    {"c", "cpp", "go", "java", "csharp", "rust", "cuda", "scala", "junit", "verilog", "swift"}
)
_NO_RUNNER = frozenset({"sql"})

_RETURN_CODES = {
    Status.finished: 0,
    Status.cpu_timeout: None,
    Status.wall_timeout: None,
    Status.signalled: -int(signal.SIGABRT),  # a sandbox does not say which signal it was
    Status.killed: -int(signal.SIGKILL),
    Status.output_limit: -int(signal.SIGXFSZ),
    Status.memory_limit: 1,
}
"""Those of programs that have no exit code of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Upper limits of one program, whatever its request says."""

    run_s: float = 300.0
    memory_mb: int = 4096
    """Also the default of requests without a limit."""
    output_kb: int = 16_384
    """As much as any of this package's data sets needs (LiveCodeBench, for one)."""

    def check(self, limits: Limits) -> None:
        """Reject limits above these: a verdict must not depend on the server that gave it.

        Raises:
            ConfigError: a limit is too high, or not positive.
        """
        most = {"wall_s": self.run_s, "memory_mb": self.memory_mb, "output_kb": self.output_kb}
        for field in fields(limits):
            value, bound = getattr(limits, field.name), most.get(field.name, math.inf)
            if not 0 < value <= bound:
                raise ConfigError(
                    f"limits.{field.name}={value:g}: the server allows more than 0, at most {bound:g}"
                )


async def run_code(request: RunCodeRequest, sandbox: Sandbox, bounds: Bounds) -> RunCodeResponse:
    """Run a request's program; the sandbox's own failures have status SandboxError.

    Raises:
        DataError: its files cannot be written here.
        ConfigError: this sandbox cannot run such a request.
    """
    if request.run_timeout <= 0:
        return _response(Execution(status=Status.wall_timeout), request)
    if request.language in _NO_RUNNER:
        return _sandbox_error(f"no runner for {request.language}")
    mark, source = "", request.code
    if request.fetch_files and request.language == "python":
        source, mark = _fetching(source, request.fetch_files)
    files = decoded(request.files)
    program = Program(source=source, language=request.language, files=files)
    inputs, limits = [Stdin(request.stdin or "")], _limits(request, bounds)
    try:
        (execution,) = await sandbox.run(program, inputs, limits)
    except ConfigError:
        if request.language == "python":
            raise
        return _toolchain_missing(request)
    except SandboxError as error:
        return _sandbox_error(str(error))
    return _response(execution, request, mark)


def _limits(request: RunCodeRequest, bounds: Bounds) -> Limits:
    run_s = min(request.run_timeout, bounds.run_s)
    memory_mb = request.memory_limit_MB
    return Limits(
        cpu_s=run_s,
        wall_s=run_s,
        memory_mb=min(memory_mb, bounds.memory_mb) if memory_mb > 0 else bounds.memory_mb,
        output_kb=bounds.output_kb,
    )


def _response(execution: Execution, request: RunCodeRequest, mark: str = "") -> RunCodeResponse:
    stdout, files = execution.stdout, {}
    if mark:
        stdout, files = _split(stdout, mark)
    status = execution.status
    compiled = (
        PhaseResult(status="Finished", execution_time=0.0, return_code=0, stdout="", stderr="")
        if request.language in _COMPILED
        else None
    )
    ended = PhaseResult(
        status="Finished",
        execution_time=execution.wall_s,
        return_code=_RETURN_CODES.get(status, execution.exit_code or 1),
        stdout=stdout,
        stderr=execution.stderr_tail,
    )
    if status is Status.compile_error:
        return RunCodeResponse(status="Failed", compile_result=ended)
    if status in (Status.cpu_timeout, Status.wall_timeout):
        ended.status = "TimeLimitExceeded"
    return RunCodeResponse(
        status="Success" if status is Status.finished else "Failed",
        compile_result=compiled,
        run_result=ended,
        files=files,
    )


def _toolchain_missing(request: RunCodeRequest) -> RunCodeResponse:
    """Return what a shell without the language's command gives, with a message that says so."""
    language = request.language
    missing = Execution(
        status=Status.compile_error if language in _COMPILED else Status.raised,
        exit_code=wire.TOOLCHAIN_MISSING,
        stderr_tail=f"{language}: command not found\n",
    )
    response = _response(missing, request)
    response.message = f"{wire.NO_TOOLCHAIN} {language}"
    return response


def _sandbox_error(message: str) -> RunCodeResponse:
    return RunCodeResponse(status="SandboxError", message=message)


# ── fetch_files ───────────────────────────────────────────────────────────────────────────────────

_WRAPPER = """\
def fetch(names=NAMES, mark=MARK):
    import base64, json, os, sys
    found = {}
    for name in names:
        try:
            with open(name, "rb") as file:
                found[name] = base64.b64encode(file.read()).decode()
        except (OSError, ValueError):
            pass
    sys.stdout.flush()
    data = memoryview((mark + json.dumps(found)).encode())
    while data:
        data = data[os.write(1, data):]

import atexit
atexit.register(fetch)
del fetch, atexit
exec(compile(SOURCE, "main.py", "exec", dont_inherit=True))
"""


def _fetching(source: str, names: Sequence[str]) -> tuple[str, str]:
    """Return a program that runs `source` and then prints files, and the mark before them."""
    mark = secrets.token_hex(16)
    wrapper = _WRAPPER.replace("NAMES", repr(tuple(names)), 1).replace("MARK", repr(mark), 1)
    return wrapper.replace("SOURCE", repr(source), 1), mark


def _split(stdout: str, mark: str) -> tuple[str, dict[str, str]]:
    """Return the program's own output, and its files in base64."""
    printed, found, files = stdout.partition(mark)
    if not found:
        return stdout, {}
    try:
        return printed, {str(name): str(content) for name, content in json.loads(files).items()}
    except (ValueError, AttributeError):  # truncated by the output limit
        return printed, {}


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
        case ("call", function, str(arguments), *continues):
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
