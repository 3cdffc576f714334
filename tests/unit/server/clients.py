"""Clients of the server over fake sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.listening import Admission
from coding_model_project.types import Execution
from tests.fakes import FakeSandbox

JSON = {"content-type": "application/json"}
PRINT = {"code": "hello", "language": "python"}


@asynccontextmanager
async def client_of(
    sandbox: FakeSandbox | EmbeddedSandbox, admission: Admission | None = None, **settings
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(sandbox, admission or Admission(2, 512), Settings(**settings))  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def ends(**fields) -> Callable[..., Execution]:
    return lambda _source, _given: Execution(**fields)


async def ran(answer: Callable[..., Execution], **request) -> dict:
    async with client_of(FakeSandbox(answer)) as client:
        response = await client.post("/run_code", json=PRINT | request)
        assert response.status_code == 200
        return response.json()
