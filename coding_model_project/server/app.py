"""The routes, the checks of every request, and the metrics.

A request that runs something waits for its place; a full server answers 429.
"""

from __future__ import annotations

import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coding_model_project import __version__
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.isolation.proc_files import oom_kills
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.fusion import wire
from coding_model_project.server import running
from coding_model_project.server.listening import Admission, Leaving
from coding_model_project.server.running import Bounds, run_batch, run_code, status_of

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names of a server that only this machine reaches."""
_CLIENT_GONE = 499
T = TypeVar("T")
_NO_SUCH_PATH = (
    "this server runs programs, by /run_code and /run_batch: no Jupyter cells, no data sets; to judge "
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
    async def placed(request: Request, run: Callable[[], Awaitable[T]]) -> T:
        async with admission.place():
            if await request.is_disconnected():
                raise HTTPException(_CLIENT_GONE, "the client gave up while the request waited")
            with measures.seconds.time():
                return await run()

    @app.post(wire.RUN_CODE, response_model=None)
    async def _run_code(body: wire.RunCodeRequest, request: Request) -> Response:
        answer = await placed(request, partial(run_code, body, sandbox, bounds))
        measures.count(answer.status)
        return Response(answer.model_dump_json(), media_type="application/json")

    @app.post(wire.RUN_BATCH, response_model=None)
    async def _run_batch(body: running.BatchRequest, request: Request) -> Response:
        answer = await placed(request, partial(run_batch, body, sandbox, bounds))
        for outcome in answer["programs"]:
            measures.count(status_of(outcome))
        return AsciiJson(answer)


# ── who may send requests ─────────────────────────────────────────────────────────────────────────

_OPEN_PATHS = ("/v1/ping", "/v1/ready")


class _TooLarge(Exception):
    """A request's body exceeds the limit."""


class Gate:
    """Middleware that rejects requests without the token (401) or with too large a body (413).

    Args:
        token: required as `Authorization: Bearer TOKEN`, except by ping and readiness. None requires
            none, and rejects the pages of other sites (403).
        max_bytes: most bytes of a request's body.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, max_bytes: int) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if refusal := self._refusal(scope["path"], headers):
            await refusal(scope, receive, send)
            return
        received, too_large = 0, False

        async def counted() -> Message:
            nonlocal received, too_large
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                too_large = True
                raise _TooLarge
            return message

        async def unless_too_large(message: Message) -> None:
            if not too_large:  # otherwise this is the application's own answer to the exception
                await send(message)

        with contextlib.suppress(_TooLarge):
            await self._app(scope, counted, unless_too_large)
        if too_large:
            await self._too_large()(scope, receive, send)

    def _refusal(self, path: str, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the answer to a request that may not enter, by its headers; None if it may."""
        given = headers.get(b"authorization", b"")
        if self._token is None:
            origin = headers.get(b"origin")  # of a browser's page
            if origin is not None and origin != b"http://" + headers.get(b"host", b""):
                return _refuse(403, "this server has no token, and answers no other site's pages")
        elif path not in _OPEN_PATHS and not hmac.compare_digest(given, b"Bearer " + self._token):
            return _refuse(401, "this server requires a token: Authorization: Bearer TOKEN")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> Response:
        return _refuse(413, f"a request may have at most {self._max_bytes} bytes")


def _refuse(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)


# ── metrics ───────────────────────────────────────────────────────────────────────────────────────

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Measures:
    """Metrics of one server."""

    CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, admission: Admission, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._registry = CollectorRegistry()
        self._programs = Counter(
            "sandbox_programs",
            "Programs by the status of their answer",
            ["status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "sandbox_run_seconds",
            "Seconds of requests that run programs, without waiting for a place",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Places(admission))
        self._info = Info(
            "sandbox", "The sandbox and this server's version", registry=self._registry
        )

    def count(self, status: wire.RunStatus) -> None:
        """Count a program."""
        self._programs.labels(status).inc()

    def text(self) -> str:
        self._info.info({"identity": self._sandbox.identity, "version": __version__})
        return generate_latest(self._registry).decode()


class _Places(Collector):
    """The state of an admission, and the kernel's count of processes killed for lack of memory."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        now = self._admission
        for name, meaning, value in (
            ("places", "Requests whose programs can run at once", now.places),
            ("running", "Requests whose programs run", now.running),
            ("waiting", "Requests that wait for a place", now.waiting),
            ("leaving", "1 while the server shuts down", now.leaving),
        ):
            yield GaugeMetricFamily(f"sandbox_{name}", meaning, value=value)
        for name, meaning, value in (
            ("refused", "Requests answered 429, or 503 during shutdown", now.refused),
            ("waited_seconds", "Seconds that requests have waited for a place", now.waited_s),
            ("oom_kills", "Processes of this machine killed for lack of memory", oom_kills()),
        ):
            yield CounterMetricFamily(f"sandbox_{name}", meaning, value=value)
