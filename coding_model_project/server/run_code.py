"""/run_code over a `Sandbox`: maps limits of requests and statuses of answers.

A sandbox returns only output, so for `fetch_files` the program prints its files as it ends. They are its
own, so there is nothing to forge. A killed program returns none.
"""

from __future__ import annotations

import json
import math
import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass, fields

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.fusion import wire
from coding_model_project.server.requests import (
    PhaseResult,
    RunCodeRequest,
    RunCodeResponse,
    decoded,
)
from coding_model_project.types import Execution, Limits, Program, Status, Stdin

_COMPILED = frozenset(
    {"c", "cpp", "go", "java", "csharp", "rust", "cuda", "scala", "junit", "verilog", "swift"}
)
_NO_RUNNER = frozenset({"sql"})

_STOPPED_BY_SIGNAL = -int(signal.SIGABRT)
"""Return code of a program ended by a signal: a sandbox does not say by which, but for SIGKILL."""

_STOPPED_BY_OUTPUT = -int(signal.SIGXFSZ)


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
        return _toolchain_missing(request.language)
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
        return_code=_return_code(execution),
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


def _return_code(execution: Execution) -> int | None:
    match execution.status:
        case Status.finished:
            return 0
        case Status.cpu_timeout | Status.wall_timeout:
            return None
        case Status.signalled:
            return _STOPPED_BY_SIGNAL
        case Status.killed:
            return -int(signal.SIGKILL)
        case Status.output_limit:
            return _STOPPED_BY_OUTPUT
        case Status.memory_limit:
            return 1
        case _:
            return execution.exit_code or 1


def _toolchain_missing(language: str) -> RunCodeResponse:
    missing = PhaseResult(
        status="Finished",
        execution_time=0.0,
        return_code=wire.TOOLCHAIN_MISSING,
        stdout="",
        stderr=f"{language}: command not found\n",
    )
    message = f"{wire.NO_TOOLCHAIN} {language}"
    if language in _COMPILED:
        return RunCodeResponse(status="Failed", message=message, compile_result=missing)
    return RunCodeResponse(status="Failed", message=message, run_result=missing)


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
