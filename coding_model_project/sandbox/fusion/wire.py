"""The wire format of SandboxFusion's `/run_code`, for this project's client and its server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat

Body = dict[str, Any]
"""A request's JSON."""

RUN_CODE = "/run_code"
RUN_BATCH = "/run_batch"
"""The path at which this project's own server takes many programs, with many inputs each."""

LEAVING = "x-sandbox-leaving"
"""Header with which this project's server marks a 503 during shutdown, when it ran nothing."""

PLACES = "x-sandbox-places"
"""Header in which this project's server says, with each ping, how many requests it runs at once."""

NO_TOOLCHAIN = "this server has no toolchain for"
"""Start of the message with which this project's server rejects a language."""

TOOLCHAIN_MISSING = 127
"""A shell's exit code for a command that is not installed."""

SANDBOX_ERROR = "SandboxError"
"""Status with which a server reports its own failure, with HTTP status 200."""


Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql",
    "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
    "c",
]  # fmt: skip
"""SandboxFusion's languages, and C."""

RunStatus = Literal["Success", "Failed", "SandboxError"]
PhaseStatus = Literal["Finished", "Error", "TimeLimitExceeded"]


class RunCodeRequest(BaseModel):
    compile_timeout: FiniteFloat = 10.0
    run_timeout: FiniteFloat = 10.0
    memory_limit_MB: int = -1
    code: str
    stdin: str | None = None
    language: Language
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []


class PhaseResult(BaseModel):
    """The outcome of compiling or running; a signal is a negative return code."""

    status: PhaseStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResponse(BaseModel):
    status: RunStatus
    message: str = ""
    compile_result: PhaseResult | None = None
    run_result: PhaseResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


def run_code(
    code: str,
    language: str,
    *,
    run_s: float,
    stdin: str | None = None,
    compile_s: float = 30.0,
    memory_mb: int | None = None,
    files: Mapping[str, str] | None = None,
    fetch_files: Sequence[str] = (),
) -> Body:
    """Return a request's JSON. Without `memory_mb` the server limits only time."""
    body: Body = {
        "code": code,
        "language": language,
        "stdin": stdin,
        "compile_timeout": compile_s,
        "run_timeout": run_s,
        "files": dict(files or {}),
        "fetch_files": list(fetch_files),
    }
    return body if memory_mb is None else {**body, "memory_limit_MB": memory_mb}


def describe(data: bytes) -> str:
    """Return a short description of something that came instead of an answer."""
    text = " ".join(data[:2000].decode("utf-8", "replace").split())
    if not text:
        return "an empty answer"
    kind = "an HTML page" if text[:200].lower().startswith(("<!doctype", "<html")) else "an answer"
    return f"{kind} that is not SandboxFusion's: {text[:80]!r}"
