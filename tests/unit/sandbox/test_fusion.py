"""FusionSandbox against servers that work, fail and lie. What is confined is in tests/contract."""

from __future__ import annotations

import ast
import asyncio
import base64
import json
import time

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.sandbox.fusion import (
    FusionSandbox,
    bundle,
    driver_messages,
    fleet,
    other_languages,
    packing,
    wire,
)
from coding_model_project.sandbox.fusion.capabilities import Facts
from coding_model_project.sandbox.fusion.client import TOKEN_VARIABLE
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.server.app import Settings, create_app
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Limits,
    Opaque,
    Program,
    Status,
    Stdin,
)
from tests.fakes import FakeSandbox
from tests.unit.sandbox.fusion_servers import Handler, answer, broken, respond
from tests.unit.sandbox.test_codec import PLAIN, same

URL = "http://one:8080"
LIMITS = Limits(cpu_s=1, wall_s=2, output_kb=256)
CORES = 4
FACTS = Facts(
    tier="rlimit", identity="rlimit/cpython-3.11", memory_limits_stack=True, cuts_output=True
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Trying again soon; what a server asks for in Retry-After is waited for all the same."""
    monkeypatch.setattr(fleet, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(fleet, "_JITTER_S", 0.02)


def program_of_a_probe(source: str, given) -> Execution:
    """Answer the start-up probe as a working server does; any other program prints its input."""
    text = given.text if isinstance(given, Stdin) else ""
    if "getrlimit" in source:
        return Execution(
            status=Status.finished,
            stdout=json.dumps({"echo": text.strip(), "stack": -1, "cores": CORES}),
        )
    if "* 300000" in source:
        return Execution(status=Status.finished, stdout="x" * 300_000)
    if "input()" in source:
        return Execution(status=Status.finished, stdout=f"{text}\n")
    return Execution(status=Status.finished, stdout=text)


class Server(httpx.AsyncBaseTransport):
    """This project's server over a fake sandbox, with faults before it, by host."""

    def __init__(
        self,
        *hosts: str,
        sandbox: FakeSandbox | None = None,
        token: str | None = None,
        at_once: int = CORES,
    ):
        self.sandbox = sandbox or FakeSandbox(
            program_of_a_probe, identity="fake/rlimit/cpython-3.11"
        )
        app = create_app(self.sandbox, Settings(at_once=at_once, token=token))  # type: ignore[arg-type]
        self._inner = httpx.ASGITransport(app)
        self.faults: dict[str, list[Handler]] = {host: [] for host in hosts or ("one",)}
        self.always: dict[str, Handler] = {}
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host in self.always:
            return self.always[host](request)
        if request.url.path == "/run_code":
            self.asked.append(host)
            if self.faults[host]:
                return self.faults[host].pop(0)(request)
        return await self._inner.handle_async_request(request)


def fusion(server: httpx.AsyncBaseTransport, *hosts: str, **options) -> FusionSandbox:
    urls = [f"http://{host}:8080" for host in hosts or ("one",)]
    options = {"retry_s": 20.0, "timeout_s": 5.0} | options
    return FusionSandbox(urls, transport=server, **options)


async def outputs(sandbox: FusionSandbox, *texts: str) -> list[str]:
    inputs = [Stdin(text) for text in texts]
    return [e.stdout for e in await sandbox.run(Program(source="x"), inputs, LIMITS)]


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
    class Picky(FakeSandbox):
        async def run(self, program, inputs, limits, *, stop_when=None):
            if program.source == "poison":
                raise SandboxError("lost it")
            if program.source == "asserts":
                raise DataError("the tests do not compile")
            return await super().run(program, inputs, limits, stop_when=stop_when)

    server = Server(sandbox=Picky(program_of_a_probe, identity="fake/rlimit/cpython-3.11"))
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


async def test_what_the_sandbox_there_refuses_is_refused_here():
    class Picky(FakeSandbox):
        async def run(self, program, inputs, limits, *, stop_when=None):
            if any(isinstance(given, Asserts) for given in inputs):
                raise DataError("no asserts here")
            return await super().run(program, inputs, limits, stop_when=stop_when)

    server = Server(sandbox=Picky(program_of_a_probe, identity="fake/rlimit/cpython-3.11"))
    async with fusion(server) as sandbox:
        with pytest.raises(DataError, match="no asserts here"):
            await sandbox.run(Program(source="x"), [Asserts(source="assert f()")], LIMITS)


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
    "no answer of the driver": answer(
        run_result={
            "status": "Finished",
            "execution_time": 0.1,
            "return_code": 0,
            "stdout": "",
            "stderr": "",
        }
    ),
    "driver killed": answer(
        status="Failed",
        run_result={
            "status": "Finished",
            "execution_time": 0.1,
            "return_code": -9,
            "stdout": "",
            "stderr": "",
        },
    ),
    "driver too slow": answer(
        status="Failed",
        run_result={
            "status": "TimeLimitExceeded",
            "execution_time": 60.0,
            "return_code": None,
            "stdout": "",
            "stderr": "",
        },
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_tried_again(name):
    server = Server()
    async with fusion(server) as sandbox:
        server.faults["one"] = [FAULTS[name]]
        assert await outputs(sandbox, "a", "b") == ["a", "b"]


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_that_stays_is_an_error_and_never_an_execution(name):
    server = Server()
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
        assert 1.0 <= time.monotonic() - started < 4.0


async def test_a_server_that_never_answers_is_given_up():
    server = Server()
    async with fusion(server, timeout_s=0.2, retry_s=0.1) as sandbox:
        server.sandbox.delay_s = 60.0
        with pytest.raises(SandboxError, match="no answer within"):
            await sandbox._open().run(wire.run_code("x", "python", run_s=0.1), 0.1, lambda r: r)


async def test_the_next_server_takes_over_and_the_bad_one_rests():
    server = Server("one", "two")
    async with fusion(server, "one", "two") as sandbox:
        server.always["one"] = broken(httpx.ConnectError)
        assert await asyncio.gather(*(outputs(sandbox, str(n)) for n in range(20))) == [
            [str(n)] for n in range(20)
        ]
        server.asked.clear()
        started = time.monotonic()
        assert await outputs(sandbox, "a") == ["a"]
        assert server.asked == ["two"]
        assert time.monotonic() - started < 2


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
        runs = (outputs(sandbox, str(n)) for n in range(20))
        found = await asyncio.gather(*runs, return_exceptions=True)
        assert all(isinstance(error, SandboxError) for error in found)
        assert time.monotonic() - started < 5  # each of them for 0.5 s would be 10
        server.always.clear()
        assert await outputs(sandbox, "back") == ["back"]


async def test_an_outage_of_a_server_is_announced_once_and_so_is_its_end(capsys):
    server = Server()
    async with fusion(server) as sandbox:
        server.faults["one"] = [FAULTS["HTTP 500"]] * 3
        assert await outputs(sandbox, "a") == ["a"]
    down, back = capsys.readouterr().err.splitlines()
    assert down.startswith("the sandbox server http://one:8080 does not answer (HTTP 500: Internal")
    assert "retrying until" in down
    assert back.startswith("the sandbox server http://one:8080 is back after")


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

    class Both(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            host, counts = request.url.host, request.url.path == "/run_code"
            in_flight[host] += counts
            most[host] = max(most[host], in_flight[host])
            try:
                return await (one if host == "one" else two).handle_async_request(request)
            finally:
                in_flight[host] -= counts

    async with fusion(Both(), "one", "two") as sandbox:
        one.sandbox.delay_s = two.sandbox.delay_s = 0.02
        await asyncio.gather(*(outputs(sandbox, "a") for _ in range(80)))
    assert most == {"one": 1, "two": 3}


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
        sandbox._open()._retry_s = 20.0
        assert await outputs(sandbox, "b") == ["b"]
    server.always |= {"one": broken(httpx.ConnectError), "two": respond(503)}
    with pytest.raises(SandboxError, match="no SandboxFusion server can be used: http://one:8080"):
        async with fusion(server, "one", "two", retry_s=0.2):
            raise AssertionError("it started")


async def test_servers_that_differ_are_refused():
    class Two(httpx.AsyncBaseTransport):
        servers = {
            "one": Server("one"),
            "two": Server(
                "two", sandbox=FakeSandbox(program_of_a_probe, identity="fake/rlimit/cpython-3.10")
            ),
        }

        async def handle_async_request(self, request):
            return await self.servers[request.url.host].handle_async_request(request)

    with pytest.raises(ConfigError, match=r"differ: rlimit/cpython-3.\d+ and rlimit/cpython-3.\d+"):
        async with fusion(Two(), "one", "two"):
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


@pytest.mark.parametrize("urls", [[], ["localhost:8080"], ["ftp://a"], ["http://"]])
def test_addresses_are_checked(urls):
    config = SandboxConfig(name="fusion", urls=urls)
    with pytest.raises(ConfigError, match=r"coding\.sandbox\.urls"):
        make_sandbox(config)


# ── what a driver is asked and says ───────────────────────────────────────────────────────────────


def task_of(*inputs, **fields) -> driver_messages.Task:
    return driver_messages.Task(
        program=Program(**{"source": "x"} | fields), inputs=inputs, limits=LIMITS
    )


def request_of(*tasks, secret: bytes = b"s" * 16) -> driver_messages.Request:
    return driver_messages.Request(secret=secret, tasks=tasks, budget_s=1.0)


def answered(request: driver_messages.Request, *outcomes, secret: bytes | None = None) -> bytes:
    answer = driver_messages.Answer(identity="t/p", outcomes=outcomes)
    return driver_messages.encode_answer(answer, request.secret if secret is None else secret)


INPUTS = (
    st.builds(Stdin, st.text())
    | st.builds(Call, function=st.text(), args=st.lists(PLAIN, max_size=3).map(tuple))
    | st.builds(Asserts, source=st.text(), entry_point=st.none() | st.text())
)
EXECUTIONS = st.builds(
    Execution,
    status=st.sampled_from(Status),
    stdout=st.text(),
    stderr_tail=st.text(),
    value=PLAIN | st.builds(Opaque, st.text(max_size=20)),
    exit_code=st.none() | st.integers(0, 255),
    cpu_s=st.floats(0, 100),
)


TASKS = st.builds(
    lambda source, inputs, files: task_of(*inputs, source=source, files=files),
    st.text(),
    st.lists(INPUTS, max_size=4),
    st.dictionaries(st.text(), st.binary(), max_size=2),
)
OUTCOMES = st.builds(
    lambda executions, lost: driver_messages.Outcome(executions=tuple(executions), lost=lost),
    st.lists(EXECUTIONS, max_size=3),
    st.none() | st.text(),
)


@given(st.lists(TASKS, max_size=3))
@settings(deadline=None)
def test_requests_survive_the_way(tasks):
    request = request_of(*tasks)
    text = driver_messages.encode_request(request).decode("ascii")
    found = driver_messages.decode_request(text)
    assert found.secret == request.secret
    for got, sent in zip(found.tasks, request.tasks, strict=True):
        assert (got.program, got.limits) == (sent.program, sent.limits)
        for one, other in zip(got.inputs, sent.inputs, strict=True):
            if isinstance(other, Call) and isinstance(one, Call):
                assert one.function == other.function
                assert same(one.args, other.args)
            else:
                assert one == other


@given(st.lists(OUTCOMES, max_size=3))
@settings(deadline=None)
def test_answers_survive_the_way(outcomes):
    request = request_of(*(task_of(*[Stdin("")] * len(one.executions)) for one in outcomes))
    found = driver_messages.decode_answer(answered(request, *outcomes), request)
    for got, sent in zip(found.outcomes, outcomes, strict=True):
        assert got.lost == sent.lost
        for one, other in zip(got.executions, sent.executions, strict=True):
            assert same(one.value, other.value) or one.value == other.value
            assert (one.status, one.stdout, one.exit_code) == (
                other.status,
                other.stdout,
                other.exit_code,
            )


@given(OUTCOMES, st.data())
@settings(deadline=None)
def test_a_cut_or_changed_answer_is_none(outcome, data):
    request = request_of(task_of(*[Stdin("")] * len(outcome.executions)))
    whole = answered(request, outcome)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for found in (whole[:at], changed, whole + b"x"):
        with pytest.raises(driver_messages.NotAnAnswer):
            driver_messages.decode_answer(found, request)


def test_an_answer_signed_with_another_secret_is_none():
    request = request_of(task_of(Stdin("")))
    forged = driver_messages.Outcome(executions=(Execution(status=Status.finished),))
    for secret in (b"", b"t" * 16):
        with pytest.raises(driver_messages.NotAnAnswer):
            driver_messages.decode_answer(answered(request, forged, secret=secret), request)


def test_more_answers_than_inputs_or_programs_are_none():
    request = request_of(task_of(Stdin("")))
    one = Execution(status=Status.finished)
    for outcomes in (
        [driver_messages.Outcome(executions=(one, one))],
        [driver_messages.Outcome(executions=(one,))] * 2,
    ):
        with pytest.raises(driver_messages.NotAnAnswer):
            driver_messages.decode_answer(answered(request, *outcomes), request)


@given(st.text())
def test_any_text_is_refused_as_a_request(text):
    with pytest.raises(ValueError):
        driver_messages.decode_request(text)


def sources() -> dict[str, str]:
    """The modules that are sent to be compiled."""
    (given,) = bundle.build_body("x86_64")["files"].values()
    content = json.loads(base64.b64decode(given))
    return {**content["sources"], "lean": content["lean"]}


def test_the_driver_brings_the_sandbox_and_nothing_that_judges():
    modules = sources()
    assert "coding_model_project.sandbox.embedded.zygote" in modules
    assert not [name for name in modules if "grading" in name or name.endswith(".client")]


def test_the_driver_is_python_3_10():
    for source in sources().values():
        ast.parse(source, feature_version=(3, 10))


# ── other languages ───────────────────────────────────────────────────────────────────────────────


def phase(status="Finished", code: int | None = 0, stdout="", stderr="") -> dict:
    return {
        "status": status,
        "execution_time": 0.5,
        "return_code": code,
        "stdout": stdout,
        "stderr": stderr,
    }


def response(status="Success", compiled: dict | None = None, ran: dict | None = None):
    content = {"status": status, "message": "m", "compile_result": compiled, "run_result": ran}
    return wire.Response.parse(json.dumps(content).encode())


@pytest.mark.parametrize(
    ("got", "status"),
    [
        (response(ran=phase(stdout="42\n")), Status.finished),
        (response("Failed", compiled=phase(code=1, stderr="no")), Status.compile_error),
        (response("Failed", compiled=phase("TimeLimitExceeded", None)), Status.compile_error),
        (response("SandboxError", compiled=phase("Error", 1)), Status.compile_error),
        (response("Failed", phase(), phase(code=3)), Status.raised),
        (response("Failed", phase(), phase(code=-6)), Status.signalled),
        (response("Failed", ran=phase("TimeLimitExceeded", None)), Status.wall_timeout),
        (response(ran=phase(stdout="x" * 140_000)), Status.output_limit),
        (response(ran=phase(stdout="ż" * 70_000)), Status.output_limit),
    ],
)
def test_statuses_of_other_languages(got, status):
    assert other_languages.execution(got, LIMITS, FACTS).status is status


async def test_a_language_without_a_toolchain_is_the_configurations_fault():
    async with fusion(Server()) as sandbox:
        server_says_hello = Program(source="int main() {}", language="cobol")
        with pytest.raises(ConfigError, match=r"cobol: no such language; SandboxFusion .*, julia"):
            await sandbox.run(server_says_hello, [Stdin("")], LIMITS)
        with pytest.raises(ConfigError, match=r"language=pyhton: .*did you mean python\?"):
            await sandbox.run(Program(source="", language="pyhton"), [Stdin("")], LIMITS)
        with pytest.raises(ConfigError, match="cannot run cpp"):  # the fake prints no hello
            await sandbox.run(Program(source="x", language="cpp"), [Stdin("")], LIMITS)


async def test_other_languages_take_standard_input_one_request_each():
    def hello(source: str, given) -> Execution:
        if "puts" in source:
            return Execution(status=Status.finished, stdout="hello\n")
        return program_of_a_probe(source, given)

    server = Server(sandbox=FakeSandbox(hello, identity="fake/rlimit/cpython-3.11"))
    program = Program(source="int main() {}", language="cpp")
    async with fusion(server) as sandbox:
        server.asked.clear()
        executions = await sandbox.run(program, [Stdin("a"), Stdin("b")], LIMITS)
        assert [e.stdout for e in executions] == ["a", "b"]
        assert len(server.asked) == 3  # the toolchain is asked for once
        with pytest.raises(DataError, match="Call inputs are for python"):
            await sandbox.run(program, [Call(function="f")], LIMITS)
        (bad,) = await sandbox.run(Program(source="\ud800", language="cpp"), [Stdin("")], LIMITS)
        assert bad.status is Status.compile_error


def of_hello(source: str, given) -> Execution:
    if "puts" in source or "console.log" in source:
        return Execution(status=Status.finished, stdout="hello\n")
    return program_of_a_probe(source, given)


async def test_an_outage_at_the_first_program_of_a_language_ends_with_the_outage():
    server = Server(sandbox=FakeSandbox(of_hello, identity="fake/rlimit/cpython-3.11"))
    program = Program(source="int main() {}", language="cpp")
    async with fusion(server, retry_s=0.2) as sandbox:
        server.always["one"] = broken(httpx.ConnectError)
        with pytest.raises(SandboxError):
            await sandbox.run(program, [Stdin("a")], LIMITS)
        server.always.clear()
        (execution,) = await sandbox.run(program, [Stdin("a")], LIMITS)
        assert execution.stdout == "a"


class Bare(FakeSandbox):
    """A sandbox whose machine has only Python."""

    async def run(self, program, inputs, limits, *, stop_when=None):
        if program.language != "python":
            raise ConfigError(f"language={program.language}: no toolchain here")
        return await super().run(program, inputs, limits, stop_when=stop_when)


@pytest.mark.parametrize("language", ["cpp", "nodejs"])
async def test_a_server_of_a_fleet_without_the_toolchain_judges_no_program(language):
    one = Server("one", sandbox=FakeSandbox(of_hello, identity="fake/rlimit/cpython-3.11"))
    two = Server("two", sandbox=Bare(program_of_a_probe, identity="fake/rlimit/cpython-3.11"))

    class Both(httpx.AsyncBaseTransport):
        examined = False

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            to_two = self.examined and request.url.host == "two"
            return await (two if to_two else one).handle_async_request(request)

    one.faults["two"] = []
    program, both = Program(source="x", language=language), Both()
    async with fusion(both, "one", "two") as sandbox:
        await sandbox.run(program, [Stdin("")], LIMITS)
        both.examined = True
        runs = (sandbox.run(program, [Stdin(str(n))], LIMITS) for n in range(20))
        found = [execution for (execution,) in await asyncio.gather(*runs)]
        assert [execution.stdout for execution in found] == [str(n) for n in range(20)]
        assert "two" in two.asked


async def test_another_server_at_the_address_of_a_killed_one_is_examined_first():
    server = Server(sandbox=FakeSandbox(of_hello, identity="fake/rlimit/cpython-3.11"))
    program = Program(source="int main() {}", language="cpp")
    async with fusion(server, retry_s=1.5) as sandbox:
        await sandbox.run(program, [Stdin("a")], LIMITS)
        server.sandbox.identity = "fake/namespaces/other"
        server.faults["one"] = [broken(httpx.ConnectError)]
        with pytest.raises(SandboxError, match=r"differ: rlimit/cpython-3\.11 and namespaces/o"):
            await sandbox.run(program, [Stdin("a")], LIMITS)
        server.sandbox.identity = "fake/rlimit/cpython-3.11"
        (execution,) = await sandbox.run(program, [Stdin("a")], LIMITS)
        assert execution.stdout == "a"


async def test_an_unforeseen_error_is_raised_and_not_waited_for():
    server = Server()

    def unforeseen(_request: httpx.Request) -> httpx.Response:
        raise RuntimeError("the client has been closed")

    async with fusion(server) as sandbox:
        server.always["one"] = unforeseen
        with pytest.raises(RuntimeError, match="has been closed"):
            async with asyncio.timeout(5):
                await outputs(sandbox, "a")
