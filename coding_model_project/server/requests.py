"""Requests and answers in SandboxFusion's wire format. Fields have their names on the wire."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, FiniteFloat

from coding_model_project.strict_json import shallow


class BadRequest(Exception):
    """A request that cannot be answered as it is: HTTP 400."""


Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql",
    "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
]  # fmt: skip

_MAX_DEPTH = 64
"""Deepest nesting of lists and objects that can be written as JSON again."""


AnyObject = Annotated[dict[str, Any], AfterValidator(partial(shallow, max_depth=_MAX_DEPTH))]
"""JSON of any shape, but not of any depth."""

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


class TestConfig(BaseModel):
    """Settings for showing and judging a data set's rows."""

    __test__ = False  # not a pytest class

    dataset_type: str | None = None
    language: Language | None = None
    locale: str | None = None
    is_fewshot: bool | None = None
    compile_timeout: FiniteFloat | None = None
    run_timeout: FiniteFloat | None = None
    custom_extract_logic: str | None = None
    provided_data: list[AnyObject] | AnyObject | None = None
    extra: AnyObject = {}


class GetPromptsRequest(BaseModel):
    dataset: str
    config: TestConfig
    offset: int = 0
    limit: int = 1_000_000


class GetPromptByIdRequest(BaseModel):
    dataset: str
    id: int | str
    config: TestConfig


class Prompt(BaseModel):
    id: int | str
    prompt: str
    labels: dict[str, Any]


class SubmitRequest(BaseModel):
    dataset: str
    id: int | str
    completion: str
    config: TestConfig


class TestOutcome(BaseModel):
    __test__ = False  # not a pytest class

    passed: bool
    exec_info: RunCodeResponse
    test_info: dict[str, Any] | None = None


class SubmitResponse(BaseModel):
    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: str | None = None
    tests: list[TestOutcome]
    extracted_type: str | None = None
    extra: dict[str, Any] | None = None
