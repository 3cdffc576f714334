"""Requests of any kind, made from the server's own OpenAPI document: none is answered as a failure of
the server's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.listening import Admission

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.xdist_group("any request"),  # one server
    pytest.mark.filterwarnings("ignore"),
]

_PATHS = ("/run_code", "/run_batch", "/run_jupyter")
_LOOPBACK = {"Host": "127.0.0.1"}
"""Without a token a server answers to this name only."""
_CHECKED = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    """A server over an embedded sandbox, which a loop in a thread of its own runs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sandbox = EmbeddedSandbox(workers=1)
    try:
        asyncio.run_coroutine_threadsafe(sandbox.__aenter__(), loop).result()
        yield create_app(sandbox, Admission(2, 512), Settings())
    finally:
        asyncio.run_coroutine_threadsafe(sandbox.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("path", _PATHS)
def test_no_request_is_a_failure_of_the_servers(app, path):
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=_LOOPBACK)

    @_CHECKED
    @given(schema[path]["POST"].as_strategy())
    def check(case: schemathesis.Case) -> None:
        case.validate_response(case.call(headers=_LOOPBACK), checks=[not_a_server_error])

    check()
