"""The live view: a local, read-only HTTP server that follows runs and shows every sample.

Its routes require the token. live.html and live.js are the page; `live_samples` is the table of samples.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson

from coding_model_project.errors import CodingModelError
from coding_model_project.extras import extra
from coding_model_project.reports.charts import RunData
from coding_model_project.reports.live_samples import Filters, Number, SampleIndex
from coding_model_project.reports.page import page
from coding_model_project.reports.run_charts import run_charts
from coding_model_project.reports.run_page import run_data, run_names
from coding_model_project.reports.sample_selection import sample_fields
from coding_model_project.runs.folder import RunFolder

with extra("serve"):
    from fastapi import FastAPI, Query, Request, Response
    from fastapi.responses import PlainTextResponse
    from starlette.middleware.trustedhost import TrustedHostMiddleware

HOST = "127.0.0.1"
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
            Path(__file__).with_name("live.html"),
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
            live.index.refresh()
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


# ── followed runs ─────────────────────────────────────────────────────────────────────────────────


class LiveRuns:
    """Finished or running runs, which are read again only if files change.

    Args:
        runs: at least one run; duplicates are removed.

    Raises:
        ConfigError: a folder is not a run's.
        DataError: a line of the samples is damaged.
    """

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = list({run.path.resolve(): run for run in runs}.values())
        self.names = run_names(self._runs)
        for run in self._runs:
            run.provenance()  # raises for other folders before any run is read
        self.index = SampleIndex([run.path for run in self._runs])
        self.index.refresh()

    @property
    def version(self) -> str:
        """Text that changes whenever the overview changes."""
        files = [file for run in self._runs for file in (run.metrics, run.evaluations)]
        sizes = [file.stat().st_size if file.exists() else 0 for file in files]
        return repr((self.index.changes, sizes, [str(run.state) for run in self._runs]))

    def runs(self) -> list[RunData]:
        """Return the data above the samples, by run."""
        runs = zip(self._runs, self.names, self.index.tallies, strict=True)
        return [run_data(run, name, tally) for run, name, tally in runs]

    def overview(self) -> dict[str, Any]:
        """Return cards, charts, and the choices of the filters."""
        runs = self.runs()
        rows = run_charts(runs, ()).rows
        return {
            "version": self.version,
            "runs": [{"name": r.name, "state": r.state, "facts": r.facts} for r in runs],
            "charts": [{"id": one.id, **one.plain()} for row in rows for one in row],
            "choices": {name: self.index.values(name) for name in ("split", "source", "error")},
        }

    def sample(
        self, run: int, split: str, step: int, problem: str, sample: str
    ) -> dict[str, Any] | None:
        """Read a sample in full with its recorded verdict, or return None if it does not exist."""
        row = self.index.sample(run, split, step, problem, sample)
        if row is None:
            return None
        return sample_fields(row) | {"run": self.names[run], "recorded": asdict(row)}
