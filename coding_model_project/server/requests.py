"""Requests and answers in SandboxFusion's wire format, and those of /run_batch."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat

from coding_model_project.errors import DataError
from coding_model_project.types import Limits

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


class RunJupyterRequest(BaseModel):
    cells: list[str]
    cell_timeout: FiniteFloat = 0.0
    total_timeout: FiniteFloat = 45.0
    kernel: Literal["python3"] = "python3"
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []


class RunJupyterResponse(BaseModel):
    status: RunStatus
    message: str
    driver: PhaseResult | None = None
    cells: list[dict[str, Any]] = []
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


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
