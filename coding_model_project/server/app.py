"""The routes. A request that runs something waits for its place; a full server answers 429."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.fusion import wire
from coding_model_project.server import requests
from coding_model_project.server.admission import Admission, Leaving
from coding_model_project.server.gate import Gate
from coding_model_project.server.measures import Measures
from coding_model_project.server.run_batch import run_batch
from coding_model_project.server.run_code import Bounds, run_code

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names of a server that only this machine reaches."""
_CLIENT_GONE = 499
_NO_SUCH_PATH = (
    "this server runs programs, by /run_code and /run_batch, and judges no data sets; to judge "
    "completions of a data set, use `python -m coding_model_project grade` or "
    "`python -m coding_model_project eval`"
)


class AsciiJson(JSONResponse):
    """JSON that can repeat any name in a request, such as one with lone surrogates."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Who may send requests to a server, and the limits of each."""

    max_request_bytes: int = 64 << 20
    token: str | None = None
    hosts: tuple[str, ...] = LOOPBACK
    """Host names that are answered without a token: a page in a browser must not run programs here."""
    bounds: Bounds = field(default_factory=Bounds)


def create_app(sandbox: Sandbox, admission: Admission, settings: Settings) -> FastAPI:
    """Return an application over a sandbox that the caller starts (`listening`).

    Args:
        admission: its places are the sandbox's capacity.
    """
    app = FastAPI(
        title="SandboxFusion's API",
        docs_url=None,
        redoc_url=None,
        strict_content_type=settings.token is None,  # a browser's page may send JSON without one
    )
    measures = Measures(admission, sandbox)
    app.add_middleware(Gate, token=settings.token, max_bytes=settings.max_request_bytes)
    if settings.token is None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts, www_redirect=False)
    _add_errors(app)
    _add_running(app, sandbox, settings.bounds, admission, measures)

    @app.get("/v1/ping")
    async def ping() -> Response:
        return AsciiJson("pong", headers={wire.PLACES: str(admission.places)})

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
    @app.exception_handler(404)
    async def no_such_path(_request: Request, _error: Exception) -> Response:
        return AsciiJson({"detail": _NO_SUCH_PATH}, 404)

    @app.exception_handler(RequestValidationError)
    async def malformed(_request: Request, error: RequestValidationError) -> Response:
        # Without the request's own content, which may be of any size and depth.
        detail = [
            {key: value for key, value in one.items() if key != "input"} for one in error.errors()
        ]
        return AsciiJson({"detail": detail}, 422)

    @app.exception_handler(ConfigError)
    @app.exception_handler(DataError)
    async def unusable(_request: Request, error: Exception) -> Response:
        return AsciiJson({"detail": str(error)}, 400)

    @app.exception_handler(Exception)
    async def unforeseen(_request: Request, error: Exception) -> Response:
        return AsciiJson({"detail": type(error).__name__}, 500)  # the log has the traceback


def _add_running(
    app: FastAPI, sandbox: Sandbox, bounds: Bounds, admission: Admission, measures: Measures
) -> None:
    @app.post(wire.RUN_CODE, response_model=None)
    async def _run_code(body: requests.RunCodeRequest, request: Request) -> Response:
        async with admission.place():
            if await request.is_disconnected():  # the client gave up while the request waited
                return Response(status_code=_CLIENT_GONE)
            with measures.timed():
                answer = await run_code(body, sandbox, bounds)
        measures.count(answer.status)
        return Response(answer.model_dump_json(), media_type="application/json")

    @app.post(wire.RUN_BATCH, response_model=None)
    async def _run_batch(body: requests.BatchRequest, request: Request) -> Response:
        async with admission.place():
            if await request.is_disconnected():
                return Response(status_code=_CLIENT_GONE)
            with measures.timed():
                answer = await run_batch(body, sandbox, bounds)
        for outcome in answer.programs:
            measures.count(outcome.summary)
        return AsciiJson(answer.model_dump())

    @app.post("/run_jupyter")
    async def _run_jupyter(body: requests.RunJupyterRequest) -> requests.RunJupyterResponse:
        message = f"this server has no Jupyter kernel {body.kernel}: send a program to /run_code"
        return requests.RunJupyterResponse(status="SandboxError", message=message)
