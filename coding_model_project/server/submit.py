"""/submit: SandboxFusion's own kinds of data sets, judged by its rules, not this project's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from coding_model_project import strict_json
from coding_model_project.errors import SandboxError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.fusion import wire
from coding_model_project.server import assertions, extraction
from coding_model_project.server.fusion_comparison import same_lines
from coding_model_project.server.requests import (
    BadRequest,
    RunCodeRequest,
    RunCodeResponse,
    SubmitRequest,
    SubmitResponse,
    TestConfig,
    TestOutcome,
)
from coding_model_project.server.row_fields import Row
from coding_model_project.server.run_code import (
    Bounds,
    run_asserts,
    run_code,
    run_on_each,
)
from coding_model_project.types import Call, Limits, Program


class Kind(StrEnum):
    """Kinds of data sets, by their rows."""

    oj = "CommonOJDataset"
    """Standard input and output."""
    humaneval = "HumanEvalDataset"
    """A function's head to complete, and a `check` of it."""
    mbpp = "MBPPDataset"
    """A function, and assertions about it."""
    autoeval = "AutoEvalDataset"
    """Test code with a placeholder for the candidate's code."""


_BY_NAME = {"humaneval_python": Kind.humaneval, "mbpp": Kind.mbpp}

_CHECK = Limits(cpu_s=5.0, wall_s=10.0, memory_mb=512, output_kb=64)
_COMPILE = """
def complaint(source):
    try:
        compile(source, "row", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return str(error)
"""

_RUN_S = 10.0
"""Default of a program's wall seconds."""

Judging = Callable[[SubmitRequest, Sandbox, Bounds], Awaitable[SubmitResponse]]


def no_such_dataset(name: str) -> str:
    return f"no eval class found for dataset {name}"


def kind_of(dataset: str, config: TestConfig) -> Kind:
    """Return a data set's kind; raise BadRequest if it is unknown."""
    if config.dataset_type in list(Kind):
        return Kind(config.dataset_type)
    if config.dataset_type is None and dataset in _BY_NAME:
        return _BY_NAME[dataset]
    raise BadRequest(no_such_dataset(dataset))


def judge_of(request: SubmitRequest) -> Judging:
    """Return the judge of a submission.

    Raises:
        BadRequest: there is none for its data set.
    """
    kind = kind_of(request.dataset, request.config)
    if not isinstance(request.config.provided_data, dict):
        raise BadRequest(
            "config.provided_data must be the row to judge by: this server stores no data sets"
        )
    return _JUDGES[kind]


async def _judge_humaneval(
    request: SubmitRequest, sandbox: Sandbox, bounds: Bounds
) -> SubmitResponse:
    if request.config.extra.get("is_freeform"):
        code, completes_prompt = await extraction.extract(request, sandbox), False
    else:
        code, completes_prompt = extraction.until_next_definition(request.completion), True
    work = assertions.humaneval(_row(request), code, completes_prompt=completes_prompt)
    return await _judge_apart(request, work, sandbox, bounds)


async def _judge_mbpp(request: SubmitRequest, sandbox: Sandbox, bounds: Bounds) -> SubmitResponse:
    if request.config.is_fewshot:
        code = extraction.until_done(request.completion)
    else:
        code = await extraction.extract(request, sandbox)
    return await _judge_apart(request, assertions.mbpp(_row(request), code), sandbox, bounds)


async def _judge_apart(
    request: SubmitRequest, work: assertions.Apart, sandbox: Sandbox, bounds: Bounds
) -> SubmitResponse:
    """Judge by tests in another process than the candidate's: it cannot pass them by exiting early or
    by changing Python."""
    run_request = _run_request(work.program, request.config, "python")
    answer = _judged(await run_asserts(run_request, work.tests, sandbox, bounds))
    outcome = TestOutcome(passed=answer.status == "Success", exec_info=answer)
    if not outcome.passed:
        await _check_row(work.without_code, sandbox)
    return SubmitResponse(
        id=request.id,
        accepted=outcome.passed,
        extracted_code=work.extracted,
        full_code=f"{work.program}\n{work.tests.source}",
        tests=[outcome],
    )


async def _judge_autoeval(
    request: SubmitRequest, sandbox: Sandbox, bounds: Bounds
) -> SubmitResponse:
    """Judge by test code with the candidate's code inserted: one process must reach the last line."""
    config, code = request.config, await extraction.extract(request, sandbox)
    work = assertions.autoeval(_row(request), code, quoted=bool(config.extra.get("repr_code")))
    answer = _judged(
        await run_code(_run_request(work.program, config, work.language), sandbox, bounds)
    )
    passed = answer.status == "Success"
    if work.last_word and answer.run_result is not None:
        printed, word, _ = (answer.run_result.stdout or "").partition(work.last_word)
        answer.run_result.stdout = printed
        passed = passed and word != ""
    if not passed:
        await _check_row(work.without_code, sandbox)
    outcome = TestOutcome(passed=passed, exec_info=answer)
    return SubmitResponse(
        id=request.id,
        accepted=passed,
        extracted_code=code,
        full_code=work.shown,
        tests=[outcome],
        extra={},
    )


async def _judge_io(request: SubmitRequest, sandbox: Sandbox, bounds: Bounds) -> SubmitResponse:
    config, row = request.config, _row(request)
    if config.language is None:
        raise BadRequest("config.language field must exist for CommonOJDataset, got None")
    tests = _tests(row)
    code = await extraction.extract(request, sandbox)

    def passed(index: int, answer: RunCodeResponse) -> bool:
        printed = (answer.run_result.stdout or "") if answer.run_result else ""
        expected = tests[index]["output"]["stdout"]
        return _judged(answer).status == "Success" and same_lines(expected, printed)

    def should_continue(index: int, answer: RunCodeResponse) -> bool:
        return bool(config.extra.get("run_all_cases")) or passed(index, answer)

    answers = await run_on_each(
        _run_request(code, config, config.language),
        [test["input"]["stdin"] for test in tests],
        sandbox,
        bounds,
        should_continue,
    )
    outcomes = [
        TestOutcome(passed=passed(index, answer), exec_info=answer, test_info=tests[index])
        for index, answer in enumerate(answers)
    ]
    accepted = len(outcomes) == len(tests) and all(outcome.passed for outcome in outcomes)
    return SubmitResponse(id=request.id, accepted=accepted, extracted_code=code, tests=outcomes)


_JUDGES: dict[Kind, Judging] = {
    Kind.oj: _judge_io,
    Kind.humaneval: _judge_humaneval,
    Kind.mbpp: _judge_mbpp,
    Kind.autoeval: _judge_autoeval,
}


async def _check_row(source: str, sandbox: Sandbox) -> None:
    """Check that the row's own code compiles; if not, the row is at fault, not the submission.

    Raises:
        BadRequest: it does not compile.
    """
    if not source:
        return
    call = Call(function="complaint", args=(source,))
    (seen,) = await sandbox.run(Program(source=_COMPILE), [call], _CHECK)
    if isinstance(seen.value, str):
        raise BadRequest(f"the row's own code does not compile: {seen.value[:200]}")


def _judged(answer: RunCodeResponse) -> RunCodeResponse:
    """Return an answer that says something about the program.

    Raises:
        SandboxError: it reports an outage, which is not a failed test.
        BadRequest: this server cannot run the language.
    """
    if answer.status == "SandboxError":
        raise SandboxError(answer.message)
    if answer.message.startswith(wire.NO_TOOLCHAIN):
        raise BadRequest(answer.message)
    return answer


def _row(request: SubmitRequest) -> Row:
    assert isinstance(request.config.provided_data, dict)
    return request.config.provided_data


def _tests(row: Row) -> list[dict[str, Any]]:
    """Return a row's tests, each with its standard input and output.

    Raises:
        BadRequest: there are none, or they are malformed.
    """
    tests = row.get("test")
    try:
        tests = strict_json.loads(tests) if isinstance(tests, str) else tests
        if not tests:
            raise BadRequest("the row has no tests: any submission would be accepted")
        for test in tests:
            if not isinstance(test["input"]["stdin"], str):
                raise TypeError("input.stdin is not text")
            if not isinstance(test["output"]["stdout"], str):
                raise TypeError("output.stdout is not text")
        return list(tests)
    except KeyError as error:
        raise BadRequest(f"a test of the row lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise BadRequest(f"a test of the row is malformed: {error}") from error


def _run_request(code: str, config: TestConfig, language: str) -> RunCodeRequest:
    try:
        return RunCodeRequest.model_validate(
            {
                "code": code,
                "language": language,
                "compile_timeout": config.compile_timeout or _RUN_S,
                "run_timeout": config.run_timeout or _RUN_S,
            }
        )
    except ValueError as error:
        raise BadRequest(f"unknown language {language!r}") from error
