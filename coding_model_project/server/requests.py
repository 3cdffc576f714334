"""Requests and answers in SandboxFusion's wire format. Fields have their names on the wire."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat

Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql",
    "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
]  # fmt: skip

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
