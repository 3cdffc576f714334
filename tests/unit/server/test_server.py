"""The HTTP server over fake sandboxes: what passes, what is refused, and what answers look like."""

from __future__ import annotations

import asyncio
import base64
import builtins
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import bundle, capabilities, driver_messages, wire
from coding_model_project.server import extraction, fetching
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.fusion_comparison import same_lines
from coding_model_project.server.listening import check_exposure, listen, serve
from coding_model_project.server.run_code import Bounds
from coding_model_project.types import Asserts, Execution, Limits, Program, Status, Stdin
from tests.fakes import FakeSandbox, echo

PRINT = {"code": "hello", "language": "python"}


@asynccontextmanager
async def client_of(sandbox: FakeSandbox, **settings) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(sandbox, Settings(**{"at_once": 2} | settings))  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client


def ends(**fields) -> Callable[..., Execution]:
    return lambda _source, _given: Execution(**fields)


async def ran(answer: Callable[..., Execution], **request) -> dict:
    async with client_of(FakeSandbox(answer)) as client:
        response = await client.post("/run_code", json=PRINT | request)
        assert response.status_code == 200
        return response.json()


# ── /run_code ─────────────────────────────────────────────────────────────────────────────────────


async def test_success():
    body = await ran(ends(status=Status.finished, stdout="1\n", exit_code=0, wall_s=0.5))
    assert body == {
        "status": "Success",
        "message": "",
        "compile_result": None,
        "run_result": {
            "status": "Finished",
            "execution_time": 0.5,
            "return_code": 0,
            "stdout": "1\n",
            "stderr": "",
        },
        "executor_pod_name": None,
        "files": {},
    }


@pytest.mark.parametrize(
    ("status", "exit_code", "phase", "code"),
    [
        (Status.syntax_error, None, "Finished", 1),
        (Status.raised, 3, "Finished", 3),
        (Status.signalled, None, "Finished", -9),
        (Status.cpu_timeout, None, "TimeLimitExceeded", None),
        (Status.wall_timeout, None, "TimeLimitExceeded", None),
        (Status.memory_limit, 77, "Finished", 1),
        (Status.output_limit, 1, "Finished", -25),
    ],
)
async def test_failures(status, exit_code, phase, code):
    body = await ran(ends(status=status, exit_code=exit_code, stdout="partial"))
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
    assert [(limits.wall_s, limits.memory_mb) for limits in seen] == [
        (3, 64),
        (20, 1000),
        (10, 1000),
    ]


async def test_a_sandbox_that_fails_is_a_sandbox_error():
    async with client_of(FakeSandbox(failures=1)) as client:
        body = (await client.post("/run_code", json=PRINT)).json()
    assert (body["status"], body["message"], body["run_result"]) == (
        "SandboxError",
        "the fake is down",
        None,
    )


@pytest.mark.parametrize(
    ("language", "phase"),
    [("go", "compile_result"), ("cpp", "compile_result"), ("php", "run_result")],
)
async def test_a_language_the_sandbox_lacks_is_a_missing_toolchain(language, phase):
    class PythonOnly(FakeSandbox):
        async def run(self, program, inputs, limits, *, stop_when=None):
            raise ConfigError("only python")

    async with client_of(PythonOnly()) as client:
        body = (await client.post("/run_code", json=PRINT | {"language": language})).json()
    assert (body["status"], body[phase]["return_code"]) == ("Failed", 127)
    assert "command not found" in body[phase]["stderr"]


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        ({"language": "Python", "code": ""}, ["body", "language"]),
        ({"language": "python"}, ["body", "code"]),
        ({"language": "python", "code": 1}, ["body", "code"]),
        ({"language": "python", "code": "", "files": []}, ["body", "files"]),
    ],
)
async def test_malformed_requests(request_, where):
    async with client_of(FakeSandbox()) as client:
        response = await client.post("/run_code", json=request_)
    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, where)


async def test_jupyter_says_that_it_is_not_there():
    async with client_of(FakeSandbox()) as client:
        body = (await client.post("/run_jupyter", json={"cells": ["1"]})).json()
    assert body["status"] == "SandboxError"
    assert "no Jupyter kernel" in body["message"]


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


@pytest.mark.parametrize("streamed", [False, True])
async def test_too_large_a_request_is_refused(streamed):
    async with client_of(FakeSandbox(), max_request_bytes=1000) as client:
        content = b'{"language": "python", "code": "' + b"x" * 1000 + b'"}'

        async def pieces():
            for start in range(0, len(content), 100):
                yield content[start : start + 100]

        response = await client.post("/run_code", content=pieces() if streamed else content)
        assert response.status_code == 413
        assert (await client.post("/run_code", json=PRINT)).status_code == 200


async def test_beyond_capacity_429_and_nothing_lost():
    sandbox = FakeSandbox(echo, delay_s=0.05)
    async with client_of(sandbox, at_once=2, max_waiting=3) as client:
        posts = [client.post("/run_code", json=PRINT | {"code": str(n)}) for n in range(20)]
        responses = await asyncio.gather(*posts)
        refused = [response for response in responses if response.status_code == 429]
        assert len(refused) == 15
        assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
        answered = [(n, r) for n, r in enumerate(responses) if r.status_code == 200]
        assert [r.json()["run_result"]["stdout"] for _, r in answered] == [
            str(n) for n, _ in answered
        ]
        assert sandbox.most_running == 2
        assert len(sandbox.calls) == 5
        text = (await client.get("/metrics")).text
        assert "sandbox_refused 15.0" in text
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
        said = (
            f"--port={port}: cannot listen on 127.0.0.1:{port}: .*such as --port 0 for a free one"
        )
        with pytest.raises(ConfigError, match=said):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"--host=192\.0\.2\.1: .*--host 127\.0\.0\.1"):
        listen("192.0.2.1", 0)


# ── /submit and prompts ───────────────────────────────────────────────────────────────────────────


def io_submission(*expected: str, **config) -> dict:
    tests = [{"input": {"stdin": f"{n}"}, "output": {"stdout": e}} for n, e in enumerate(expected)]
    row = {"id": 0, "content": "?", "labels": {}, "test": tests}
    settings = {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": row}
    return {
        "dataset": "mine",
        "id": 7,
        "completion": "```python\nx\n```",
        "config": settings | config,
    }


def its_input(_source, given) -> Execution:
    return Execution(status=Status.finished, stdout=given.text if isinstance(given, Stdin) else "")


async def test_submit_stops_at_the_first_failure_unless_told():
    async with client_of(FakeSandbox(its_input)) as client:
        stopped = (await client.post("/submit", json=io_submission("0", "x", "2"))).json()
        whole = io_submission("0", "x", "2", extra={"run_all_cases": True})
        whole = (await client.post("/submit", json=whole)).json()
        right = (await client.post("/submit", json=io_submission("0", "1 "))).json()
    assert [test["passed"] for test in stopped["tests"]] == [True, False]
    assert [test["passed"] for test in whole["tests"]] == [True, False, True]
    assert (stopped["accepted"], right["accepted"], right["id"]) == (False, True, 7)


async def test_an_outage_is_no_verdict():
    async with client_of(FakeSandbox(its_input, failures=1)) as client:
        response = await client.post("/submit", json=io_submission("0"))
        assert (response.status_code, "retry-after" in response.headers) == (503, True)
        assert (await client.post("/submit", json=io_submission("0"))).json()["accepted"]


@pytest.mark.parametrize(
    "change",
    [
        {"dataset_type": "Nope"},
        {"dataset_type": None},
        {"language": None},
        {"provided_data": None},
        {"provided_data": {"id": 0, "test": []}},
        {"provided_data": {"id": 0, "test": [{"input": {}, "output": {"stdout": ""}}]}},
        {"provided_data": {"id": 0, "test": "["}},
        {"dataset_type": "AutoEvalDataset", "provided_data": {"id": 0, "test": {"code": ""}}},
        {"dataset_type": "MBPPDataset", "provided_data": {"id": 0}},
        {"dataset_type": "HumanEvalDataset", "provided_data": {"prompt": ""}},
    ],
)
async def test_what_cannot_be_judged_is_refused(change):
    async with client_of(FakeSandbox(its_input)) as client:
        response = await client.post("/submit", json=io_submission("0", **change))
    assert response.status_code == 400
    assert response.json()["detail"]


def _bad_rows() -> list[tuple[str, dict, str]]:
    """Requests whose row is at fault, by path, and what the answer says."""
    io = {"dataset_type": "CommonOJDataset", "language": "python"}
    function = {"dataset_type": "HumanEvalDataset"}
    row = {"id": 1, "content": "?", "labels": {}}
    task = {
        "task_id": "1",
        "prompt": "def f():\n",
        "entry_point": "f",
        "test": "def check(f): pass",
    }
    code = {"labels": {"execution_language": "python"}, "test": {"code": "x"}}
    deep, deeper = (json.loads("[" * n + "]" * n) for n in (100, 600))
    return [
        ("/get_prompts", io | {"provided_data": [row | {"id": [1]}]}, "'id' must be"),
        ("/get_prompts", io | {"provided_data": [row | {"id": None}]}, "'id' must be"),
        ("/get_prompts", io | {"provided_data": [row | {"labels": [1]}]}, "'labels' must be"),
        ("/get_prompts", io | {"provided_data": [row], "locale": "fr"}, "locale='fr'"),
        ("/get_prompts", function | {"provided_data": [task | {"prompt": 1}]}, "'prompt' must be"),
        ("/get_prompts", io | {"provided_data": [row | {"labels": {"x": deep}}]}, "nests too deep"),
        ("/list_ids", io | {"provided_data": [{"x": deeper}]}, "nests too deep"),
        ("/list_ids", io | {"provided_data": [{"id": {"a": 1}}]}, "'id' must be"),
        (
            "/submit",
            function | {"provided_data": task | {"entry_point": "f); x("}},
            "must be a name",
        ),
        ("/submit", function | {"provided_data": task | {"test": ["x"]}}, "'test' must be text"),
        ("/submit", function | {"provided_data": task | {"test": "def check(f"}}, "do not compile"),
        (
            "/submit",
            function | {"provided_data": task | {"prompt": "def f(:\n"}},
            "does not compile",
        ),
        (
            "/submit",
            {"dataset_type": "MBPPDataset", "provided_data": {"test_list": "abc"}},
            "list of",
        ),
        (
            "/submit",
            {"dataset_type": "MBPPDataset", "provided_data": {"test_list": ["("]}},
            "compile",
        ),
        (
            "/submit",
            {"dataset_type": "AutoEvalDataset", "provided_data": code | {"test": {"code": "x ="}}},
            "does not compile",
        ),
        ("/submit", io | {"run_timeout": 1e400, "provided_data": row}, "finite"),
    ]


@pytest.fixture(scope="module")
async def embedded() -> AsyncIterator[EmbeddedSandbox]:
    async with EmbeddedSandbox(workers=1) as sandbox:
        yield sandbox


@pytest.mark.sandbox
@pytest.mark.parametrize(("path", "config", "says"), _bad_rows())
async def test_a_row_that_is_at_fault_is_refused_with_its_reason(embedded, path, config, says):
    body = {"dataset": "mine", "id": 1, "completion": "    return 1", "config": config}
    async with client_of(embedded) as client:
        response = await client.post(path, content=json.dumps(body))
    assert response.status_code in (400, 422), response.text
    assert says in response.text


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"files": {"../x": ""}}, 400, "outside"),
        ({"files": {"": ""}}, 400, "does not name a file"),
        ({"files": {"a": "abcde"}}, 400, "not base64"),
        ({"files": {"x" * 300: ""}}, 400, "too long"),
        ({"fetch_files": ["a\0b", "\ud800"]}, 200, "Success"),
        ({"memory_limit_MB": 10**30}, 200, "Success"),
        ({"memory_limit_MB": -(10**30)}, 200, "Success"),
        ({"run_timeout": 1e-300}, 200, "TimeLimitExceeded"),
        ({"run_timeout": -1}, 200, "TimeLimitExceeded"),
        ({"code": "(" * 5000, "fetch_files": ["a"]}, 200, "Failed"),
        ({"code": "a b", "fetch_files": ["a"]}, 200, "SyntaxError"),
    ],
)
async def test_names_limits_and_sources_of_any_kind_are_answered(embedded, change, status, says):
    async with client_of(embedded) as client:
        body = {"code": "print(1)", "language": "python"} | change
        response = await client.post("/run_code", content=json.dumps(body))
    assert (response.status_code, says in response.text) == (status, True), response.text


async def test_a_large_source_does_not_block_others():
    """The server never compiles a program itself, with files to fetch neither."""
    async with client_of(FakeSandbox(echo)) as client:
        body = PRINT | {"code": "x=" + "[" * 90 + "]" * 90 + "\n" * 2_000_000, "fetch_files": ["a"]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                builtins, "compile", lambda *_, **__: pytest.fail("compiled in the server")
            )
            assert (await client.post("/run_code", json=body)).status_code == 200


async def test_assertions_run_apart_and_only_true_passes():
    async def accepted(value) -> bool:
        def answer(_source, given) -> Execution:
            assert isinstance(given, Asserts)
            return Execution(status=Status.finished, value=value, exit_code=0)

        row = {"id": 1, "labels": {}, "test_list": ["assert f() == 1"]}
        submission = io_submission(dataset_type="MBPPDataset", provided_data=row)
        async with client_of(FakeSandbox(answer)) as client:
            return (await client.post("/submit", json=submission)).json()["accepted"]

    assert [await accepted(value) for value in (True, "line 1: no", None, 1)] == [True] + [
        False
    ] * 3


async def test_extraction_logic_runs_in_the_sandbox():
    def answer(_source, given) -> Execution:
        if isinstance(given, Stdin):
            return Execution(status=Status.finished, stdout="0")
        assert given.args == ("1/0", "```python\nx\n```")
        return Execution(status=Status.finished, value="code")

    async with client_of(FakeSandbox(answer)) as client:
        request = io_submission("0", custom_extract_logic="1/0")
        body = (await client.post("/submit", json=request)).json()
    assert (body["extracted_code"], body["accepted"]) == ("code", True)


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("3\n", "3", True),
        ("yes", "YES\n\n", True),
        ("a\nb", " a \nb ", True),
        ("0.3333333334", "0.333333333", True),
        ("1 2", "1  2", False),
        ("0.1 0.3333333334", "0.1 0.333333333", False),
        ("nan", "NaN", True),
        ("1\n2", "1", False),
        ("1", "1.1", False),
    ],
)
def test_its_comparison(expected, got, same):
    assert same_lines(expected, got) is same


def test_bodies_end_at_the_next_definition():
    assert extraction.until_next_definition("    return 1\n\ndef f(): pass") == "    return 1\n"
    assert extraction.until_done("[BEGIN]\nx\n[DONE]\ny") == "\nx\n"


async def test_prompts_need_the_right_shape():
    config = {"dataset_type": "CommonOJDataset", "language": "cpp"}
    async with client_of(FakeSandbox()) as client:
        for path, data, status in (
            ("/get_prompts", {"id": 1}, 400),
            ("/get_prompt_by_id", [{"id": 1}], 400),
            ("/get_prompt_by_id", {"id": 1}, 400),
            ("/get_prompt_by_id", {"id": 1, "content": "A"}, 200),
        ):
            body = {"dataset": "x", "id": 1, "config": config | {"provided_data": data}}
            assert (await client.post(path, json=body)).status_code == status
        assert (await client.get("/list_datasets")).json() == []


# ── files handed over ─────────────────────────────────────────────────────────────────────────────


def test_files_are_split_from_the_output():
    _source, mark = fetching.wrap("print(1)", ["a"])
    content = base64.b64encode(b"\x00").decode()
    assert fetching.split(f'1\n{mark}{{"a": "{content}"}}', mark) == ("1\n", {"a": content})
    assert fetching.split("1\n", mark) == ("1\n", {})
    assert fetching.split(f"1\n{mark}{{", mark) == ("1\n", {})


def test_a_sandbox_that_does_not_start_is_said():
    class Broken(FakeSandbox):
        async def __aenter__(self):
            raise SandboxError("no tier")

    sandbox = Broken()
    app = create_app(sandbox, Settings(at_once=1))  # type: ignore[arg-type]
    with listen("127.0.0.1", 0) as listening, pytest.raises(SandboxError, match="no tier"):
        serve(app, sandbox, listening, lambda: None)  # type: ignore[arg-type]


# ── texts and numbers that JSON can spell and few expect ──────────────────────────────────────────

SURROGATE = "x = '\ud800'"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/run_code", PRINT | {"run_timeout": float("nan")}, 422),
        ("/run_code", PRINT | {"language": SURROGATE}, 422),
        ("/run_code", PRINT | {"code": SURROGATE}, 200),
        ("/list_ids", {"dataset": SURROGATE, "config": {}}, 400),
        ("/get_prompts", {"dataset": SURROGATE, "config": {"provided_data": [{}]}}, 400),
        ("/submit", {"dataset": SURROGATE, "id": 1, "completion": "", "config": {}}, 400),
        (
            "/submit",
            {
                "dataset": "x",
                "id": SURROGATE,
                "completion": f"```python\n{SURROGATE}\n```",
                "config": {
                    "language": "python",
                    "dataset_type": "CommonOJDataset",
                    "provided_data": {
                        "test": [{"input": {"stdin": SURROGATE}, "output": {"stdout": "1"}}]
                    },
                },
            },
            200,
        ),
    ],
)
async def test_what_json_can_spell_is_answered(path, body, status):
    async with client_of(FakeSandbox(ends(status=Status.finished, stdout="1"))) as client:
        response = await client.post(path, content=json.dumps(body))
        assert response.status_code == status, response.text


@pytest.mark.parametrize(
    ("limits", "says"), [({"memory_mb": 9999}, "memory_mb=9999"), ({"cpu_s": -1.0}, "cpu_s=-1")]
)
async def test_a_batchs_limits_are_checked(limits, says):
    task = driver_messages.Task(
        program=Program(source="1"), inputs=(Stdin(""),), limits=Limits(**limits)
    )
    request = capabilities.new_request([task], budget_s=1.0)
    body = bundle.native_body(driver_messages.encode_request(request), run_s=10.0)
    async with client_of(FakeSandbox()) as client:
        answer = wire.Response.parse((await client.post("/run_code", json=body)).content)
    if answer.ran is None:
        assert says in answer.message
    else:
        (outcome,) = capabilities.read_answer(answer, request).outcomes
        assert says in outcome.error[1]
