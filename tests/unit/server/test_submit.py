"""/submit and prompts: rows of data sets that are judged, refused or shown."""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator

import pytest

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.server import extraction
from coding_model_project.server.fusion_comparison import same_lines
from coding_model_project.types import Asserts, Execution, Status, Stdin
from tests.fakes import FakeSandbox, echo
from tests.unit.server.clients import JSON, PRINT, client_of


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
    too_deep = "lists and objects within each other"
    deep, deeper = (json.loads("[" * n + "]" * n) for n in (100, 600))
    return [
        ("/get_prompts", io | {"provided_data": [row | {"id": [1]}]}, "'id' must be"),
        ("/get_prompts", io | {"provided_data": [row | {"id": None}]}, "'id' must be"),
        ("/get_prompts", io | {"provided_data": [row | {"labels": [1]}]}, "'labels' must be"),
        ("/get_prompts", io | {"provided_data": [row], "locale": "fr"}, "locale='fr'"),
        ("/get_prompts", function | {"provided_data": [task | {"prompt": 1}]}, "'prompt' must be"),
        (
            "/get_prompts",
            io | {"provided_data": [row | {"labels": {"x": deep}}]},
            too_deep,
        ),
        (
            "/list_ids",
            io | {"provided_data": [{"x": deeper}]},
            too_deep,
        ),
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
        response = await client.post(path, content=json.dumps(body), headers=JSON)
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
        response = await client.post("/run_code", content=json.dumps(body), headers=JSON)
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
