"""The routes. A request that runs something waits for its place; a full server answers 429."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from coding_model_project.errors import CodingModelError, ConfigError, DataError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.fusion import wire
from coding_model_project.server import questions, requests, row_fields, submit
from coding_model_project.server.admission import Admission, Busy, Leaving
from coding_model_project.server.gate import Gate
from coding_model_project.server.measures import Measures
from coding_model_project.server.run_code import Bounds, run_code

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names of a server that only this machine reaches."""
_CLIENT_GONE = 499


class AsciiJson(JSONResponse):
    """JSON that can repeat any request's content, such as lone surrogates and NaN."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of a server."""

    at_once: int
    """Requests whose programs run at the same time: the sandbox's capacity."""
    max_waiting: int = 512
    max_request_bytes: int = 64 << 20
    token: str | None = None
    hosts: tuple[str, ...] = LOOPBACK
    """Host names that are answered without a token: a page in a browser must not run programs here."""
    bounds: Bounds = field(default_factory=Bounds)


def create_app(sandbox: Sandbox, settings: Settings, admission: Admission | None = None) -> FastAPI:
    """Return an application over a sandbox that the caller starts (`listening`).

    Args:
        admission: passed by callers that shut the server down gracefully; default: one with `settings`.
    """
    app = FastAPI(
        title="SandboxFusion's API",
        docs_url=None,
        redoc_url=None,
        strict_content_type=settings.token is None,  # a browser's page may send JSON without one
        default_response_class=AsciiJson,
    )
    admission = admission or Admission(settings.at_once, settings.max_waiting)
    measures = Measures(admission, sandbox)
    app.add_middleware(Gate, token=settings.token, max_bytes=settings.max_request_bytes)
    if settings.token is None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts, www_redirect=False)
    _add_errors(app)
    _add_running(app, sandbox, settings.bounds, admission, measures)
    _add_datasets(app, sandbox, settings.bounds, admission, measures)

    @app.get("/v1/ping")
    async def ping() -> Response:
        return AsciiJson("pong", headers={wire.PLACES: str(settings.at_once)})

    @app.get("/v1/ready")
    async def ready() -> Response:
        if admission.leaving:
            raise Leaving
        return AsciiJson("ready")

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(measures.text(), media_type=measures.CONTENT_TYPE)

    return app


def _add_errors(app: FastAPI) -> None:
    async def busy(_request: Request, error: Exception) -> Response:
        assert isinstance(error, Busy)
        headers = {"retry-after": str(error.retry_after_s)}
        return AsciiJson({"detail": str(error)}, 429, headers)

    async def leaving(_request: Request, error: Exception) -> Response:
        headers = {wire.LEAVING: "1", "retry-after": str(Leaving.retry_after_s)}
        return AsciiJson({"detail": str(error)}, 503, {**headers, "connection": "close"})

    async def malformed(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        try:
            return AsciiJson({"detail": jsonable_encoder(error.errors())}, 422)
        except RecursionError as deep:
            return await too_deep(_request, deep)

    async def unusable(_request: Request, error: Exception) -> Response:
        return AsciiJson({"detail": str(error)}, 400)

    async def too_deep(_request: Request, _error: Exception) -> Response:
        return AsciiJson({"detail": "the request nests too deeply"}, 400)

    async def ours(_request: Request, error: Exception) -> Response:
        return AsciiJson({"detail": str(error)}, 503, {"retry-after": "1"})

    async def unforeseen(_request: Request, error: Exception) -> Response:
        return AsciiJson({"detail": type(error).__name__}, 500)  # the log has the traceback

    app.add_exception_handler(Exception, unforeseen)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(Busy, busy)
    app.add_exception_handler(Leaving, leaving)
    for permanent in (requests.BadRequest, DataError, ConfigError):
        app.add_exception_handler(permanent, unusable)
    app.add_exception_handler(RecursionError, too_deep)
    app.add_exception_handler(CodingModelError, ours)


def _add_running(
    app: FastAPI, sandbox: Sandbox, bounds: Bounds, admission: Admission, measures: Measures
) -> None:
    @app.post("/run_code", response_model=None)
    async def _run_code(body: requests.RunCodeRequest, request: Request) -> Response:
        async with admission.place():
            if await request.is_disconnected():  # the client gave up while the request waited
                return Response(status_code=_CLIENT_GONE)
            with measures.timed():
                answer = await run_code(body, sandbox, bounds)
        measures.count(answer)
        return Response(answer.model_dump_json(), media_type="application/json")

    @app.post("/run_jupyter")
    async def _run_jupyter(body: requests.RunJupyterRequest) -> requests.RunJupyterResponse:
        message = f"this server has no Jupyter kernel {body.kernel}: send a program to /run_code"
        return requests.RunJupyterResponse(status="SandboxError", message=message)


def _add_datasets(
    app: FastAPI, sandbox: Sandbox, bounds: Bounds, admission: Admission, measures: Measures
) -> None:
    @app.post("/submit")
    async def _submit(body: requests.SubmitRequest) -> requests.SubmitResponse:
        judge = submit.judge_of(body)
        async with admission.place():
            answer = await judge(body, sandbox, bounds)
        measures.count_submission(accepted=answer.accepted)
        return answer

    @app.post("/get_prompts")
    async def _get_prompts(body: requests.GetPromptsRequest) -> list[requests.Prompt]:
        given = body.config.provided_data
        if not isinstance(given, list):
            detail = "request.config.provided_data should be a list of str -> str | int"
            raise requests.BadRequest(detail)
        return [questions.prompt(row, body.dataset, body.config) for row in given]

    @app.post("/get_prompt_by_id")
    async def _get_prompt_by_id(body: requests.GetPromptByIdRequest) -> requests.Prompt:
        row = body.config.provided_data
        if not isinstance(row, dict):
            detail = "request.config.provided_data should be a dict with str -> str | int"
            raise requests.BadRequest(detail)
        return questions.prompt(row, body.dataset, body.config)

    @app.post("/list_ids")
    async def _list_ids(body: requests.GetPromptsRequest) -> list[int | str]:
        given = body.config.provided_data
        if not isinstance(given, list):
            raise requests.BadRequest(submit.no_such_dataset(body.dataset))
        return [row_fields.row_id(row, number) for number, row in enumerate(given)]

    @app.get("/list_datasets")
    async def _list_datasets() -> list[Any]:
        return []  # each request brings its rows
