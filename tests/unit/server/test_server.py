"""The HTTP server: what passes, what is refused, what answers look like, and bounds on clients."""

import asyncio
import builtins
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from coding_model_project import codec
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.server import listening
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.listening import (
    Admission,
    BoundedServer,
    check_exposure,
    config_of,
    listen,
    serve,
)
from coding_model_project.server.running import Bounds
from coding_model_project.types import Execution, Status
from tests.fakes import FakeSandbox, echo
from tests.tables import tables

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


CASES = tables("server")

# ── /run_code ─────────────────────────────────────────────────────────────────────────────────────


async def test_success():
    body = await ran(ends(status=Status.finished, stdout="1\n", exit_code=0, wall_s=0.5))
    assert body == CASES["success"]


@pytest.mark.parametrize(("status", "exit_code", "phase", "code"), CASES["failures"])
async def test_failures(status, exit_code, phase, code):
    body = await ran(ends(status=Status(status), exit_code=exit_code, stdout="partial"))
    result = body["run_result"]
    assert (body["status"], result["status"], result["return_code"]) == ("Failed", phase, code)
    assert result["stdout"] == "partial"


async def test_limits_are_those_of_the_request_within_the_servers():
    seen = []

    class Looking(FakeSandbox):
        async def run(self, program, inputs, limits, *, stop_when=None):
            seen.append(limits)
            return await super().run(program, inputs, limits, stop_when=stop_when)

    bounds = Bounds(run_s=20.0, memory_mb=1000)
    async with client_of(Looking(), bounds=bounds) as client:
        for request in (
            {"run_timeout": 3, "memory_limit_MB": 64},
            {"run_timeout": 900, "memory_limit_MB": 9000},
            {},
        ):
            await client.post("/run_code", json=PRINT | request)
    found = [(limits.wall_s, limits.memory_mb) for limits in seen]
    assert found == [(3, 64), (20, 1000), (10, 1000)]


async def test_a_sandbox_that_fails_is_a_sandbox_error():
    async with client_of(FakeSandbox(failures=1)) as client:
        body = (await client.post("/run_code", json=PRINT)).json()
    assert (body["status"], body["run_result"]) == ("SandboxError", None)
    assert body["message"] == "the fake is down"


@pytest.mark.parametrize(
    ("language", "phase"),
    [("go", "compile_result"), ("cpp", "compile_result"), ("php", "run_result")],
)
async def test_a_language_the_sandbox_lacks_is_a_missing_toolchain(language, phase):
    def python_only(*_):
        raise ConfigError("only python")

    async with client_of(FakeSandbox(python_only)) as client:
        body = (await client.post("/run_code", json=PRINT | {"language": language})).json()
    assert (body["status"], body[phase]["return_code"]) == ("Failed", 127)
    assert "command not found" in body[phase]["stderr"]


@pytest.mark.parametrize(("request_", "where"), CASES["malformed_requests"])
async def test_malformed_requests(request_, where):
    async with client_of(FakeSandbox()) as client:
        response = await client.post("/run_code", json=request_)
    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, where)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/submit"), ("POST", "/run_jupyter"), ("GET", "/list_datasets")],
)
async def test_endpoints_of_data_sets_name_what_judges_instead(method, path):
    async with client_of(FakeSandbox()) as client:
        response = await client.request(method, path)
    assert response.status_code == 404
    for named in ("/run_code", "coding_model_project grade", "coding_model_project eval"):
        assert named in response.json()["detail"]


# ── who may, how much, how many ───────────────────────────────────────────────────────────────────


async def test_the_token_is_asked_of_all_but_a_ping():
    async with client_of(FakeSandbox(), token="secret") as client:
        assert (await client.get("/v1/ping")).json() == "pong"
        for headers, status in (
            ({}, 401),
            ({"authorization": "Bearer wrong"}, 401),
            ({"authorization": "Bearer secret"}, 200),
        ):
            response = await client.post("/run_code", json=PRINT, headers=headers)
            assert response.status_code == status
        assert (await client.get("/metrics")).status_code == 401


@pytest.mark.parametrize(("headers", "status"), CASES["headers"])
async def test_without_a_token_no_page_of_another_site_runs_programs(headers, status):
    async with client_of(FakeSandbox()) as client:
        content = json.dumps(PRINT)
        response = await client.post("/run_code", content=content, headers=JSON | headers)
        assert response.status_code == status
        if "content-type" not in headers:
            assert (await client.get("/v1/ping", headers=headers)).status_code == status


async def test_with_a_token_any_name_is_answered():
    async with client_of(FakeSandbox(), token="secret") as client:
        headers = {"host": "judge.example", "authorization": "Bearer secret"}
        response = await client.post("/run_code", content=json.dumps(PRINT), headers=headers)
        assert response.status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
async def test_too_large_a_request_is_refused(streamed):
    async with client_of(FakeSandbox(), max_request_bytes=1000) as client:
        content = b'{"language": "python", "code": "' + b"x" * 1000 + b'"}'

        async def pieces():
            for start in range(0, len(content), 100):
                yield content[start : start + 100]

        response = await client.post(
            "/run_code", content=pieces() if streamed else content, headers=JSON
        )
        assert response.status_code == 413
        assert (await client.post("/run_code", json=PRINT)).status_code == 200


async def test_beyond_capacity_429_and_nothing_lost():
    sandbox = FakeSandbox(echo, delay_s=0.05)
    async with client_of(sandbox, Admission(2, 3)) as client:
        posts = [client.post("/run_code", json=PRINT | {"code": str(n)}) for n in range(20)]
        responses = await asyncio.gather(*posts)
        refused = [response for response in responses if response.status_code == 429]
        assert len(refused) == 15
        assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
        answered = [(n, r) for n, r in enumerate(responses) if r.status_code == 200]
        assert all(r.json()["run_result"]["stdout"] == str(n) for n, r in answered)
        assert sandbox.most_running == 2
        assert len(sandbox.calls) == 5
        text = (await client.get("/metrics")).text
        assert "sandbox_refused_total 15.0" in text
        assert 'sandbox_programs_total{status="Success"} 5.0' in text


def test_others_need_a_token():
    for host in ("127.0.0.1", "localhost", "::1"):
        check_exposure(host, None)
    check_exposure("0.0.0.0", "secret")
    for host in ("0.0.0.0", "10.0.0.1", "::", "sandbox.example"):
        with pytest.raises(ConfigError, match="--token"):
            check_exposure(host, None)


def test_a_port_that_is_taken():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port={port}: .*--port 0"):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"--host=192\.0\.2\.1: .*--host 127\.0\.0\.1"):
        listen("192.0.2.1", 0)


def test_a_sandbox_that_does_not_start_is_said():
    class Broken(FakeSandbox):
        async def __aenter__(self):
            raise SandboxError("no tier")

    sandbox = Broken()
    app = create_app(sandbox, Admission(1, 512), Settings())  # type: ignore[arg-type]
    with listen("127.0.0.1", 0) as taken, pytest.raises(SandboxError, match="no tier"):
        serve(app, sandbox, taken, lambda: None)  # type: ignore[arg-type]


def test_a_signal_during_the_start_ends_it():
    class Slow(FakeSandbox):
        async def __aenter__(self):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)

    sandbox = Slow()
    app = create_app(sandbox, Admission(1, 512), Settings())  # type: ignore[arg-type]
    before = signal.getsignal(signal.SIGTERM)
    with listen("127.0.0.1", 0) as taken:
        serve(app, sandbox, taken, lambda: pytest.fail("it serves"))  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGTERM) == before


# ── texts and numbers that JSON can spell and few expect ──────────────────────────────────────────

DEEP = {"code": json.loads("[" * 600 + "]" * 600)}


@pytest.mark.parametrize(("change", "status"), [*CASES["spelled"], (DEEP, 422)])
async def test_what_json_can_spell_is_answered(change, status):
    async with client_of(FakeSandbox(ends(status=Status.finished, stdout="1"))) as client:
        content = json.dumps(PRINT | change)
        response = await client.post("/run_code", content=content, headers=JSON)
        assert response.status_code == status, response.text
        assert response.json()


@pytest.mark.sandbox
@pytest.mark.parametrize(("change", "status", "says"), CASES["any kind"])
async def test_names_limits_and_sources_of_any_kind_are_answered(any_sandbox, change, status, says):
    async with client_of(any_sandbox) as client:
        body = {"code": "print(1)", "language": "python"} | change
        response = await client.post("/run_code", content=json.dumps(body), headers=JSON)
    assert (response.status_code, says in response.text) == (status, True), response.text


async def test_a_large_source_does_not_block_others():
    """The server never compiles a program itself, with files to fetch neither."""
    async with client_of(FakeSandbox(echo)) as client:
        body = PRINT | {"code": "x=" + "[" * 90 + "]" * 90 + "\n" * 2_000_000, "fetch_files": ["a"]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(builtins, "compile", lambda *_, **__: pytest.fail("compiled here"))
            assert (await client.post("/run_code", json=body)).status_code == 200


# ── /run_batch ────────────────────────────────────────────────────────────────────────────────────


def batch_of(**changes) -> dict:
    limits = {"cpu_s": 1.0, "wall_s": 2.0, "memory_mb": 64, "output_kb": 64}
    program = {"source": "x", "limits": limits, "inputs": [["stdin", "a"], ["stdin", "b"]]}
    return {"budget_s": 1.0, "programs": [program | changes]}


async def test_a_batch_runs_programs_until_its_budget_is_spent():
    whole = batch_of()
    whole["programs"] *= 3
    async with client_of(FakeSandbox()) as client:
        for budget_s, ran_of_each in ((60.0, [2, 2, 2]), (-1.0, [1])):
            answer = (await client.post("/run_batch", json=whole | {"budget_s": budget_s})).json()
            assert [len(one["executions"]) for one in answer["programs"]] == ran_of_each
        text = (await client.get("/metrics")).text
        assert 'sandbox_programs_total{status="Success"} 4.0' in text


async def test_a_batch_pauses_at_a_limit_and_runs_calls_of_one_process():
    """Nothing runs that the client may not need; calls that share their state are never parted."""
    call = ["call", "f", codec.dumps(()).decode()]
    calls = [call, [*call, True], [*call, True]]
    timeout, finished = (ends(status=status) for status in (Status.cpu_timeout, Status.finished))
    for answer, changes, ran_of_it in (
        (timeout, {}, 2),
        (timeout, {"pauses": True}, 1),
        (timeout, {"pauses": True, "inputs": calls}, 1),
        (finished, {"pauses": True, "inputs": calls}, 3),
    ):
        sandbox = FakeSandbox(answer)
        async with client_of(sandbox) as client:
            whole: dict = batch_of(**changes) | {
                "budget_s": 60.0 if "inputs" not in changes else -1.0
            }
            (found,) = (await client.post("/run_batch", json=whole)).json()["programs"]
        assert len(found["executions"]) == ran_of_it
        given = sandbox.calls[0][1]
        assert [getattr(one, "continues", False) for one in given] == [
            len(one) == 4 for one in whole["programs"][0]["inputs"]
        ]


@pytest.mark.parametrize(("changes", "error", "says"), CASES["program batch"])
async def test_a_program_of_a_batch_that_cannot_run_says_why(changes, error, says):
    async with client_of(FakeSandbox()) as client:
        response = await client.post("/run_batch", json=batch_of(**changes))
    (outcome,) = response.json()["programs"]
    assert (outcome["executions"], outcome["lost"], outcome["error"][0]) == ([], None, error)
    assert says in outcome["error"][1]


@pytest.mark.parametrize("inputs", [[["stdin"]], [["stdin", 1]], [["file", "x"]], "stdin"])
async def test_a_malformed_batch_is_refused(inputs):
    async with client_of(FakeSandbox()) as client:
        response = await client.post("/run_batch", json=batch_of(inputs=inputs))
    assert (response.status_code, response.json()["detail"][0]["loc"][:2]) == (
        422,
        ["body", "programs"],
    )


# ── bounds on a client before its request has arrived ─────────────────────────────────────────────


async def _hello(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def bounded(connections):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = BoundedServer(config_of(_hello, log_config=None), connections)
        task = asyncio.ensure_future(server._serve([taken]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield taken.getsockname()[1], server
        server.should_exit = server.force_exit = True
        await task


async def says_hello(port):
    async with httpx.AsyncClient(timeout=5) as client:
        return (await client.get(f"http://127.0.0.1:{port}/")).text == "hello"


async def connected(port, content=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(content)
    return reader, writer


async def is_closed(reader):
    with suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 5) == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_slow_clients_leave_places_to_others(sent):
    async with bounded(connections=8) as (port, server):
        slow = [await connected(port, sent) for _ in range(20)]
        assert await says_hello(port)
        assert len(server.server_state.connections) <= 8
        assert await is_closed(slow[0][0]), "the one that waited longest made place"
        for _, writer in slow:
            writer.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx"],
)
async def test_a_request_that_does_not_arrive_is_given_up(monkeypatch, sent):
    monkeypatch.setattr(listening, "REQUEST_S", 0.5)
    async with bounded(connections=8) as (port, _):
        reader, writer = await connected(port, sent)
        assert await is_closed(reader)
        writer.close()


async def test_headers_without_end_are_refused():
    async with bounded(connections=8) as (port, _):
        reader, writer = await connected(port, b"GET / HTTP/1.1\r\nx: " + b"y" * (1 << 20))
        assert (await asyncio.wait_for(reader.read(12), 5)) == b"HTTP/1.1 400"
        writer.close()


async def test_a_process_without_descriptors_serves_again_once_it_has_some(monkeypatch):
    async with bounded(connections=8) as (port, _):
        real, failures = socket.socket.accept, iter([OSError(24, "Too many open files")] * 2)

        def accept(self):
            for error in failures:
                raise error
            return real(self)

        monkeypatch.setattr(socket.socket, "accept", accept)
        assert await says_hello(port)


# ── requests of any kind, made from the server's own OpenAPI document ─────────────────────────────


_LOOPBACK = {"Host": "127.0.0.1"}
"""Without a token a server answers to this name only."""


@pytest.mark.sandbox
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", ["/run_code", "/run_batch"])
def test_no_request_is_a_failure_of_the_servers(any_sandbox, path):
    app = create_app(any_sandbox, Admission(2, 512), Settings())
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=_LOOPBACK)
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]

    @settings(max_examples=25, suppress_health_check=slow)
    @given(schema[path]["POST"].as_strategy())
    def check(case: schemathesis.Case) -> None:
        case.validate_response(case.call(headers=_LOOPBACK), checks=[not_a_server_error])

    check()
