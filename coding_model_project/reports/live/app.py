"""Routes of the live view, which are read-only and require the token."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import orjson

from coding_model_project.errors import CodingModelError
from coding_model_project.extras import extra
from coding_model_project.reports.live.filters import Filters, Number
from coding_model_project.reports.live.live_runs import LiveRuns
from coding_model_project.reports.page import page

with extra("serve"):
    from fastapi import FastAPI, Query, Request, Response
    from fastapi.responses import PlainTextResponse
    from starlette.middleware.trustedhost import TrustedHostMiddleware

HOST = "127.0.0.1"
_TEMPLATE = Path(__file__).with_name("live.html")
_SCRIPTS = ("figures.js", "code.js", "timeline.js", "sample_view.js", "live.js")
_READ = ["GET", "HEAD"]
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def create_app(live: LiveRuns, token: str, *, follow: bool) -> FastAPI:
    """Return the application.

    Args:
        token: required in each request, as `?token=TOKEN` or `Authorization: Bearer TOKEN`.
        follow: read new data whenever a page requests the overview.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _add_guard(app, token)
    _add_queries(app, live)

    @app.api_route("/", methods=_READ)
    async def _page() -> Response:
        content = page(
            _TEMPLATE,
            _SCRIPTS,
            title=", ".join(live.names),
            runs=live.runs(),
            follow=follow,
            data={},
        )
        return Response("".join(content), media_type="text/html")

    @app.api_route("/api/overview", methods=_READ)
    async def _overview(have: str = "") -> Response:
        if follow:
            live.refresh()
        return _json({"version": have} if have == live.version else live.overview())

    return app


def _add_queries(app: FastAPI, live: LiveRuns) -> None:
    index = live.index

    @app.api_route("/api/steps", methods=_READ)
    async def _steps(filters: Annotated[Filters, Query()]) -> Response:
        return _json(index.steps(filters))

    @app.api_route("/api/groups", methods=_READ)
    async def _groups(filters: Annotated[Filters, Query()]) -> Response:
        return _json(index.groups(filters))

    @app.api_route("/api/samples", methods=_READ)
    async def _samples(filters: Annotated[Filters, Query()]) -> Response:
        return _json(index.samples(filters))

    @app.api_route("/api/sample", methods=_READ)
    async def _sample(run: Number, split: str, step: Number, problem: str, sample: str) -> Response:
        found = live.sample(run, split, step, problem, sample)
        return PlainTextResponse("no such sample", 404) if found is None else _json(found)


def _add_guard(app: FastAPI, token: str) -> None:
    """Refuse requests without the token (403), and with a foreign host name (400, DNS rebinding)."""

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.query_params.get("token", bearer)
        if not secrets.compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("missing token; open the address that `report` printed", 403)
        response = await answer(request)
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(CodingModelError)
    async def _unreadable(_request: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), 500)

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])


def _json(content: Any) -> Response:
    """Return a JSON response; NaN becomes null."""
    return Response(orjson.dumps(content), media_type="application/json")
