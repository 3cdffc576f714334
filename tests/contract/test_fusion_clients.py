"""Clients that others wrote for SandboxFusion work against `sandbox serve`, unchanged."""

import json

import pytest

pytestmark = [pytest.mark.contract, pytest.mark.timeout(120)]

ADD = "a, b = map(int, input().split())\nprint(a + b)"
TESTS = {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}
SCORES = {
    f"```python\n{code}\n```": score
    for code, score in ((ADD, 1.0), ("print(3)", 0.5), ("1 / 0", 0.0), ("def f(:", 0.0))
}


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
    ("code", "summary"), [("print(1)", "Success"), ("1 / 0", "Failed"), ("def f(:", "Failed")]
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


def test_submit_names_what_judges_a_data_set_instead(client):
    request = client.SubmitRequest(
        dataset="mine", id=0, completion=ADD, config=client.TestConfig(language="python")
    )
    with pytest.raises(Exception, match=r"404: .*coding_model_project grade"):
        client.submit(request, max_attempts=1)


@pytest.mark.verl
def test_verls_own_reward_scores_against_it(shared_server, cpu_platform):
    from verl.utils.reward_score.sandbox_fusion import compute_score

    url = f"{shared_server.url}/run_code"
    for completion, score in SCORES.items():
        found, told = compute_score(url, None, 1024, completion, dict(TESTS))
        assert found == score, told


def test_our_reward_for_verl_scores_on_it(shared_server):
    from coding_model_project.integrations.verl import compute_score

    truth = json.dumps(TESTS)
    for completion, score in SCORES.items():
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
