"""FusionSandbox against servers that work, fail and lie. What is confined is in tests/contract."""

import asyncio
import base64
import time
from types import SimpleNamespace

import httpx
import pytest

from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.sandbox.fusion import fleet, packing, wire
from coding_model_project.sandbox.fusion.client import TOKEN_VARIABLE
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Program, Stdin
from tests.fakes import FakeSandbox
from tests.tables import tables
from tests.unit.sandbox.fusion_servers import (
    CORES,
    LIMITS,
    Hosts,
    Server,
    answer,
    broken,
    fake,
    fusion,
    outputs,
    phase,
    respond,
)

pytestmark = pytest.mark.usefixtures("impatient")


# ── one request per program ───────────────────────────────────────────────────────────────────────


async def test_one_request_runs_a_program_on_all_its_inputs():
    server = Server()
    async with fusion(server) as sandbox:
        assert sandbox.identity == "fusion/rlimit/cpython-3.11"
        server.asked.clear()
        assert await outputs(sandbox, *"abcdefghij") == list("abcdefghij")
        assert len(server.asked) == 1


async def test_early_stop_asks_in_growing_batches():
    server = Server()
    async with fusion(server) as sandbox:
        server.asked.clear()
        inputs = [Stdin(str(n)) for n in range(20)]
        for stop_at, requests in ((0, 1), (3, 2), (7, 3), (99, 3)):
            server.asked.clear()
            executions = await sandbox.run(
                Program(source="x"), inputs, LIMITS, stop_when=lambda i, _, at=stop_at: i == at
            )
            assert (len(executions), len(server.asked)) == (min(stop_at + 1, 20), requests)


async def test_programs_that_wait_share_requests():
    server = Server()
    async with fusion(server) as sandbox:
        server.asked.clear()
        found = await asyncio.gather(*(outputs(sandbox, str(n)) for n in range(40)))
        assert found == [[str(n)] for n in range(40)]
        assert len(server.asked) == CORES  # as many as the server has cores


@pytest.mark.parametrize("fault", [answer(status="SandboxError"), respond(413), respond(500)])
async def test_a_shared_request_that_fails_is_taken_apart(fault):
    server = Server()
    async with fusion(server, max_concurrency=1) as sandbox:
        server.faults["one"] = [fault]
        server.asked.clear()
        found = await asyncio.gather(*(outputs(sandbox, str(n)) for n in range(5)))
        assert found == [[str(n)] for n in range(5)]
        assert len(server.asked) == 6


async def test_a_program_that_cannot_be_run_costs_the_others_nothing():
    """An outage of its sandbox, and tests that it refuses, are its own."""

    class Picky(FakeSandbox):
        async def run(self, program, inputs, limits, *, stop_when=None):
            if program.source == "poison":
                raise SandboxError("lost it")
            if program.source == "asserts":
                raise DataError("the tests do not compile")
            return await super().run(program, inputs, limits, stop_when=stop_when)

    server = Server(sandbox=fake(kind=Picky))
    async with fusion(server, max_concurrency=1, retry_s=0.3) as sandbox:
        sources = ["x", "poison", "y", "asserts", "z"]
        found = await asyncio.gather(
            *(sandbox.run(Program(source=s), [Stdin(s)], LIMITS) for s in sources),
            return_exceptions=True,
        )
        assert isinstance(found[1], SandboxError)
        assert isinstance(found[3], DataError)
        assert [found[n][0].stdout for n in (0, 2, 4)] == ["x", "y", "z"]


async def test_what_a_request_did_not_get_to_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(packing, "SHARED_BUDGET_S", 0.05)
    server = Server()
    async with fusion(server, max_concurrency=1) as sandbox:
        server.sandbox.delay_s = 0.03
        server.asked.clear()
        found = await asyncio.gather(*(outputs(sandbox, str(n)) for n in range(12)))
        assert found == [[str(n)] for n in range(12)]
        assert 3 <= len(server.asked) <= 12


async def test_who_gives_up_waiting_is_not_run():
    server = Server()
    async with fusion(server, max_concurrency=1) as sandbox:
        server.sandbox.delay_s = 0.2
        first = asyncio.ensure_future(outputs(sandbox, "a"))
        await asyncio.sleep(0.05)
        second = asyncio.ensure_future(outputs(sandbox, "b"))
        await asyncio.sleep(0.05)
        second.cancel()
        server.asked.clear()
        assert await first == ["a"]
        await asyncio.sleep(0.05)
        assert server.asked == []


async def test_not_started_and_no_inputs():
    sandbox = fusion(Server())
    with pytest.raises(SandboxError, match="not started"):
        await outputs(sandbox, "a")
    async with sandbox:
        assert await outputs(sandbox) == []


# ── faults ────────────────────────────────────────────────────────────────────────────────────────

FAULTS = {
    "HTTP 500": respond(500, text="Internal Server Error"),
    "HTTP 502 of a proxy": respond(502, text="<html><h1>Bad Gateway</h1></html>"),
    "HTTP 404 of a proxy": respond(404, text="not here"),
    "busy": respond(429, text="{}", retry_after="0"),
    "reset": broken(httpx.ReadError),
    "closed keep-alive": broken(httpx.RemoteProtocolError),
    "cannot connect": broken(httpx.ConnectError),
    "slow to connect": broken(httpx.ConnectTimeout),
    "garbage": respond(200, text="{]"),
    "half an answer": respond(200, text='{"status": "Success", "run_res'),
    "nothing": respond(200),
    "an HTML page": respond(200, text="<!DOCTYPE html><title>Login</title>"),
    "other JSON": respond(200, text='{"detail": "hello"}'),
    "JSON of other types": respond(200, text='{"status": 1, "message": [], "run_result": "x"}'),
    "SandboxError": answer(status="SandboxError", message="wedged"),
    "no answer of the driver": answer(run_result=phase()),
    "driver killed": answer(status="Failed", run_result=phase(code=-9)),
    "driver too slow": answer(status="Failed", run_result=phase("TimeLimitExceeded", None)),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_tried_again_and_if_it_stays_an_error_never_an_execution(name):
    server = Server()
    async with fusion(server) as sandbox:
        server.faults["one"] = [FAULTS[name]]
        assert await outputs(sandbox, "a", "b") == ["a", "b"]
    async with fusion(server, retry_s=0.3) as sandbox:
        server.faults["one"] = [FAULTS[name]] * 50
        with pytest.raises(SandboxError, match="http://one:8080") as caught:
            await outputs(sandbox, "a")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_refused_request_is_not_repeated(status):
    server = Server()
    async with fusion(server) as sandbox:
        server.asked.clear()
        server.faults["one"] = [respond(status, text="no")]
        with pytest.raises(SandboxError, match=str(status)):
            await outputs(sandbox, "a")
        assert len(server.asked) == 1


async def test_retry_after_is_honoured():
    server = Server()
    async with fusion(server) as sandbox:
        server.faults["one"] = [respond(429, retry_after="1")]
        started = time.monotonic()
        assert await outputs(sandbox, "a") == ["a"]
        assert time.monotonic() - started >= 1.0


async def test_a_server_that_never_answers_is_given_up():
    server = Server()
    async with fusion(server, timeout_s=0.2, retry_s=0.1) as sandbox:
        server.sandbox.delay_s = 60.0
        with pytest.raises(SandboxError, match="no answer within"):
            body = wire.run_code("x", "python", run_s=0.1)
            await sandbox._open().fleet.run(wire.RUN_CODE, body, 0.1, lambda data: data)


async def test_the_next_server_takes_over_and_the_bad_one_rests():
    server = Server("one", "two")
    async with fusion(server, "one", "two") as sandbox:
        server.always["one"] = broken(httpx.ConnectError)
        assert await asyncio.gather(*(outputs(sandbox, str(n)) for n in range(20))) == [
            [str(n)] for n in range(20)
        ]
        server.asked.clear()
        assert await outputs(sandbox, "a") == ["a"]
        assert server.asked == ["two"]


async def test_a_server_that_recovers_is_used_again():
    server = Server("one", "two")
    async with fusion(server, "one", "two") as sandbox:
        server.always["one"] = broken(httpx.ConnectError)
        await asyncio.gather(*(outputs(sandbox, "a") for _ in range(8)))
        del server.always["one"]
        server.always["two"] = broken(httpx.ConnectError)
        assert await outputs(sandbox, "b") == ["b"]


async def test_an_outage_is_waited_for_once_and_not_by_each_request():
    server = Server()
    async with fusion(server, retry_s=0.5, max_concurrency=1) as sandbox:
        server.always["one"] = broken(httpx.ConnectError)
        started = time.monotonic()
        runs = (outputs(sandbox, str(n)) for n in range(100))
        found = await asyncio.gather(*runs, return_exceptions=True)
        assert all(isinstance(error, SandboxError) for error in found)
        assert time.monotonic() - started < 25  # each of them for 0.5 s would be 50
        server.always.clear()
        assert await outputs(sandbox, "back") == ["back"]


async def test_faults_that_pass_again_and_again_are_no_outage(monkeypatch):
    """Only one that no answer interrupts is given up."""
    now = [0.0]
    monkeypatch.setattr(fleet, "time", SimpleNamespace(monotonic=lambda: now[0]))
    server = Server()
    async with fusion(server, retry_s=20.0) as sandbox:
        for _ in range(8):
            server.faults["one"] = [FAULTS["HTTP 500"]] * 2
            assert await outputs(sandbox, "a") == ["a"]
            now[0] += 5


async def test_an_outage_of_a_server_is_announced_once_and_so_is_its_end(capsys):
    server = Server()
    async with fusion(server) as sandbox:
        server.faults["one"] = [FAULTS["HTTP 500"]] * 3
        assert await outputs(sandbox, "a") == ["a"]
    down, back = capsys.readouterr().err.splitlines()
    assert "http://one:8080 does not answer (HTTP 500: Internal" in down
    assert "http://one:8080 is back" in back


async def test_a_password_in_a_url_is_used_and_never_printed(capsys):
    server = Server()
    asked: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        return httpx.Response(500)

    server.always["one"] = refuse
    with pytest.raises(SandboxError) as refused:
        async with fusion(server, "me:swordfish@one", retry_s=0.3) as sandbox:
            await outputs(sandbox, "a")
    assert asked[0] == "Basic " + base64.b64encode(b"me:swordfish").decode()
    said = f"{refused.value}\n{capsys.readouterr().err}"
    assert "http://me:***@one:8080" in said
    assert "swordfish" not in said


async def test_one_limiter_bounds_what_is_asked_at_once():
    server = Server("one", "two")
    async with fusion(server, "one", "two", max_concurrency=4) as sandbox:
        server.sandbox.delay_s, server.sandbox.most_running = 0.02, 0
        await asyncio.gather(*(outputs(sandbox, "a") for _ in range(40)))
        assert server.sandbox.most_running == 4


async def test_as_many_are_in_flight_as_the_servers_run_at_once():
    """Not as their machines have cores, which a container's quota may not allow."""
    one, two = Server("one", at_once=1), Server("two", at_once=3)
    in_flight, most = {"one": 0, "two": 0}, {"one": 0, "two": 0}

    class Counting(Hosts):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            host, counts = request.url.host, request.url.path == wire.RUN_BATCH
            in_flight[host] += counts
            most[host] = max(most[host], in_flight[host])
            try:
                return await super().handle_async_request(request)
            finally:
                in_flight[host] -= counts

    async with fusion(Counting(one=one, two=two), "one", "two") as sandbox:
        one.sandbox.delay_s = two.sandbox.delay_s = 0.02
        await asyncio.gather(*(outputs(sandbox, "a") for _ in range(80)))
    assert most == {"one": 1, "two": 3}


async def test_an_unforeseen_error_is_raised_and_not_waited_for():
    server = Server()

    def unforeseen(_request: httpx.Request) -> httpx.Response:
        raise RuntimeError("the client has been closed")

    async with fusion(server) as sandbox:
        server.always["one"] = unforeseen
        with pytest.raises(RuntimeError, match="has been closed"):
            async with asyncio.timeout(5):
                await outputs(sandbox, "a")


# ── start-up ──────────────────────────────────────────────────────────────────────────────────────

NOT_OURS = {
    "a page": respond(200, text="<!doctype html><h1>It works!</h1>"),
    "a login": respond(302, location="http://login"),
    "nothing there": respond(404, text="no"),
    "other JSON": respond(200, text='{"status": "ok"}'),
}


@pytest.mark.parametrize("name", NOT_OURS)
async def test_what_is_not_sandboxfusion_is_refused_in_one_line(name):
    server = Server()
    server.always["one"] = NOT_OURS[name]
    with pytest.raises(ConfigError, match="http://one:8080 is not a SandboxFusion") as caught:
        async with fusion(server):
            raise AssertionError("it started")
    assert "\n" not in str(caught.value)


async def test_start_up_needs_one_server_that_can_be_reached():
    server = Server("one", "two")
    server.always["one"] = broken(httpx.ConnectError)
    async with fusion(server, "one", "two", retry_s=0.2) as sandbox:
        assert await outputs(sandbox, "a") == ["a"]
        del server.always["one"]  # it comes up later, and is looked at then
        server.always["two"] = broken(httpx.ConnectError)
        sandbox._open().fleet._retry_s = 20.0
        assert await outputs(sandbox, "b") == ["b"]
    server.always |= {"one": broken(httpx.ConnectError), "two": respond(503)}
    with pytest.raises(SandboxError, match="no SandboxFusion server can be used: http://one:8080"):
        async with fusion(server, "one", "two", retry_s=0.2):
            raise AssertionError("it started")


async def test_servers_that_differ_are_refused():
    other = Server("two", sandbox=fake(machine="rlimit/cpython-3.10"))
    with pytest.raises(ConfigError, match=r"differ: rlimit/cpython-3.\d+ and rlimit/cpython-3.\d+"):
        async with fusion(Hosts(one=Server("one"), two=other), "one", "two"):
            raise AssertionError("it started")


async def test_a_server_that_changed_meanwhile_does_not_judge():
    server = Server()
    async with fusion(server, retry_s=0.2) as sandbox:
        server.sandbox.identity = "fake/rlimit/cpython-3.12"
        with pytest.raises(SandboxError, match="the server changed"):
            await outputs(sandbox, "a")


async def test_the_token_comes_from_the_environment(monkeypatch):
    server = Server(token="secret")
    with pytest.raises(ConfigError, match=TOKEN_VARIABLE):
        async with fusion(server):
            raise AssertionError("it started")
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    async with fusion(server) as sandbox:
        assert await outputs(sandbox, "a") == ["a"]


@pytest.mark.parametrize(("urls", "says"), tables("sandbox")["urls"])
def test_addresses_are_checked(urls, says):
    config = SandboxConfig(name="fusion", urls=urls)
    with pytest.raises(ConfigError, match=rf"coding\.sandbox\.urls.*{says}") as refused:
        make_sandbox(config)
    assert "swordfish" not in str(refused.value)
