"""Clients that others wrote for SandboxFusion work against `sandbox serve`, unchanged."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.contract, pytest.mark.timeout(120)]

ADD = "a, b = map(int, input().split())\nprint(a + b)"
TESTS = [
    {"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}},
    {"input": {"stdin": "4 5\n"}, "output": {"stdout": "9\n"}},
]


@pytest.fixture
def client(shared_server):
    """The client from PyPI, pointed at the server."""
    import sandbox_fusion

    sandbox_fusion.set_endpoint(shared_server.url)
    return sandbox_fusion


def run(client, code: str, **fields):
    request = client.RunCodeRequest(code=code, language="python", **fields)
    return client.run_code(request, max_attempts=1)


def test_run_code(client):
    answer = run(client, "print(int(input()) * 2)", stdin="21")
    assert (answer.status, answer.run_result.return_code) == (client.RunStatus.Success, 0)
    assert answer.run_result.stdout == "42\n"
    failed = run(client, "import sys\nprint('x')\nsys.exit(3)")
    assert (failed.status, failed.run_result.return_code) == (client.RunStatus.Failed, 3)


@pytest.mark.parametrize(
    ("code", "summary"),
    [("print(1)", "Success"), ("1 / 0", "Failed"), ("def f(:", "Failed")],
)
def test_its_summary_of_a_result(client, code, summary):
    mapping = client.SummaryMapping(Success="Success", Failed="Failed")
    assert client.summary_run_code_result(run(client, code), mapping) == summary


def test_time_limit(client):
    answer = run(client, "print('start', flush=True)\nwhile True: pass", run_timeout=0.5)
    assert answer.run_result.status == client.CommandRunStatus.TimeLimitExceeded
    assert (answer.run_result.return_code, answer.run_result.stdout) == (None, "start\n")


async def test_run_code_async(client):
    request = client.RunCodeRequest(code="print(1)", language="python")
    answer = await client.run_code_async(request, max_attempts=1)
    assert answer.run_result.stdout == "1\n"


def test_files_in_and_out(client):
    code = "open('out', 'wb').write(open('in', 'rb').read() * 2)\nprint('done')"
    answer = run(client, code, files={"in": "AP8="}, fetch_files=["out", "missing"])
    assert (answer.run_result.stdout, answer.files) == ("done\n", {"out": "AP8A/w=="})


def submission(client, completion: str, **config):
    row = {"id": 0, "content": "sum", "labels": {}, "test": TESTS}
    settings = {"language": "python", "dataset_type": "CommonOJDataset", "provided_data": row}
    return client.SubmitRequest(
        dataset="mine", id=0, completion=completion, config=client.TestConfig(**settings | config)
    )


def test_submit(client):
    right = client.submit(submission(client, f"```python\n{ADD}\n```"), max_attempts=1)
    assert (right.accepted, len(right.tests), right.extracted_code) == (True, 2, ADD)
    wrong = client.submit(submission(client, "```python\nprint(3)\n```"), max_attempts=1)
    assert (wrong.accepted, [test.passed for test in wrong.tests]) == (False, [True, False])


def test_leaving_early_passes_nothing(client):
    row = {
        "task_id": "HumanEval/0",
        "prompt": 'def add(a, b):\n    """Add."""\n',
        "entry_point": "add",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    }
    config = {
        "dataset_type": "HumanEvalDataset",
        "provided_data": row,
        "extra": {"is_freeform": True},
    }
    for body, accepted in (
        ("def add(a, b): return a + b", True),
        ("def add(a, b): return a", False),
        ("import os\nos._exit(0)", False),
        ("exit(0)", False),
    ):
        request = submission(client, f"```python\n{body}\n```", **config)
        assert client.submit(request, max_attempts=1).accepted is accepted, body


def test_prompts(client):
    rows = [{"id": 1, "content": "A", "labels": {}}, {"id": 2, "content": "B", "labels": {}}]
    config = client.TestConfig(
        dataset_type="CommonOJDataset", language="python", provided_data=rows
    )
    found = client.get_prompts(client.GetPromptsRequest(dataset="mine", config=config))
    assert [(prompt.id, prompt.prompt[0]) for prompt in found] == [(1, "A"), (2, "B")]


@pytest.mark.verl
def test_verls_own_reward_scores_against_it(shared_server, cpu_platform):
    from verl.utils.reward_score.sandbox_fusion import compute_score

    tests = {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}
    for code, score in ((ADD, 1.0), ("print(3)", 0.5), ("1 / 0", 0.0), ("def f(:", 0.0)):
        completion = f"```python\n{code}\n```"
        found, told = compute_score(
            f"{shared_server.url}/run_code", None, 1024, completion, dict(tests)
        )
        assert found == score, told


def test_our_reward_for_verl_scores_on_it(shared_server):
    from coding_model_project.integrations.verl import compute_score

    truth = json.dumps({"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]})
    for code, score in ((ADD, 1.0), ("print(3)", 0.5), ("1 / 0", 0.0), ("def f(:", 0.0)):
        completion = f"```python\n{code}\n```"
        assert compute_score("mine", completion, truth, sandbox=shared_server.url)["score"] == score


@pytest.mark.verl
def test_verls_time_outs_and_functions(shared_server, cpu_platform):
    from verl.utils.reward_score.sandbox_fusion.utils import check_correctness

    url = f"{shared_server.url}/run_code"
    loop = "while True: pass"
    found, _ = check_correctness(url, {"inputs": [""], "outputs": [""]}, loop, timeout=1)
    assert found == [-3]
    called = {"fn_name": "add", "inputs": ["1\n2"], "outputs": ["3"]}
    found, told = check_correctness(url, called, "def add(a, b): return a + b", timeout=5)
    assert found == [True], told
