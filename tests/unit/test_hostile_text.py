"""Hostile text and JSON in every reader: a value, a row that is set aside, or an error of one line."""

import json

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_model_project import strict_json
from coding_model_project.cli.grade import _read_completions
from coding_model_project.data.loaders.base import SetAside
from coding_model_project.data.loaders.files import read_rows
from coding_model_project.data.problems import problem_line, read_problems
from coding_model_project.episodes.tool_calls import (
    ArgumentsError,
    ToolCall,
    bash_command,
    for_template,
    parse,
)
from coding_model_project.errors import CodingModelError, DataError
from coding_model_project.evaluation.backends import openai_backend
from coding_model_project.evaluation.backends.generation import Completion
from coding_model_project.evaluation.import_formats import read_samples
from coding_model_project.evaluation.journal import read_rows as read_journal
from coding_model_project.evaluation.outputs import Result
from coding_model_project.grading.extract import extract
from coding_model_project.harbor.environment.tree import of_bytes
from coding_model_project.harbor.format.reward_rules import read_rewards
from coding_model_project.harbor.gateway.chat import Chat
from coding_model_project.harbor.gateway.messages import Messages
from coding_model_project.harbor.gateway.recorder import Recorder
from coding_model_project.harbor.gateway.requests import RequestError
from coding_model_project.harbor.gateway.responses import Responses
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.listening import Admission
from tests.fakes import FakeSandbox, stdin_problem
from tests.strategies import BYTES, DEEP, JSON_TEXTS, TEXTS, with_field

few = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

PROBLEM = json.loads(problem_line(stdin_problem(("", "1"))))


def is_line(error: Exception) -> bool:
    return "\n" not in str(error)


def usable(value: object) -> None:
    """Later steps write, send and show values."""
    json.dumps(value, ensure_ascii=False).encode()
    repr(value)


@given(BYTES, st.booleans())
def test_what_the_reader_of_json_returns_can_be_written_and_shown(data, repair):
    try:
        usable(strict_json.loads(data, repair=repair))
    except ValueError as error:
        assert is_line(error)


@given(JSON_TEXTS)
def test_python_reads_the_same_values(text):
    try:
        found = strict_json.loads(text)
    except ValueError:
        return
    assert repr(found) == repr(json.loads(text))


@few
@given(st.lists(BYTES | with_field(PROBLEM).map(str.encode), max_size=3))
def test_rows_and_problems(tmp_path, lines):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(line.replace(b"\n", b" ") for line in lines))
    try:
        for _, row in read_rows(path):
            usable(row.reason if isinstance(row, SetAside) else row)
    except DataError as error:
        assert is_line(error) and str(path) in str(error)
    try:
        for problem in read_problems(path):
            problem_line(problem)
    except DataError as error:
        assert is_line(error) and str(path) in str(error)


@few
@given(with_field({"problem_id": "fake/1", "completion": "x"}))
def test_completions(tmp_path, line):
    path = tmp_path / "completions.jsonl"
    path.write_text(line, "utf-8")
    problem = stdin_problem(("", "1"))
    try:
        for _, completion in _read_completions(path, {problem.id: problem}, "here"):
            completion.encode()
    except CodingModelError as error:
        assert is_line(error)


@few
@given(with_field({"task_id": "a/1", "solution": "x", "doc": {}, "resps": [["x"]], "input": "a"}))
def test_samples_of_other_tools_and_verdicts(tmp_path, line):
    for reader in (read_samples, lambda path: list(read_journal(path, Result))):
        path = tmp_path / "samples.jsonl"
        path.write_text(line + "\n", "utf-8")
        try:
            reader(path)
        except CodingModelError as error:
            assert is_line(error)


_CALL = {"name": "bash", "arguments": {"command": "ls"}}


@given(st.lists(with_field(_CALL) | DEEP | TEXTS, max_size=4))
def test_tool_calls(parts):
    reply = parse("".join(f"<tool_call>{part}</tool_call>" for part in parts))
    for call in (*reply.calls, *(ToolCall(name="bash", arguments=part) for part in parts)):
        if call in reply.calls:
            usable(for_template([{"role": "assistant", "tool_calls": [call.openai("1")]}]))
        try:
            bash_command(call).encode()
        except ArgumentsError as error:
            assert is_line(error)


@given(TEXTS, DEEP | JSON_TEXTS)
def test_completions_without_a_program(text, data):
    for completion in (f"{text}{data}", f"```python\n{text}\n```", f"```\n{data}\n```"):
        extract(completion)


_MESSAGE = {"role": "assistant", "content": "hi", "reasoning": "", "tool_calls": [_CALL]}


@given(
    with_field(_MESSAGE)
    | JSON_TEXTS
    | with_field({"id": "1", "function": {}}).map(lambda call: f'{{"tool_calls": [{call}]}}')
)
def test_replies_of_servers(message):
    usage = '"usage": {"completion_tokens": 1}'
    reply = f'{{"choices": [{{"finish_reason": "stop", "message": {message}}}], {usage}}}'
    try:
        answer = openai_backend._parsed(reply.encode())
        openai_backend._refuse_unfinished(answer)
        found = openai_backend._completion(answer)
    except (CodingModelError, openai_backend._Unanswered) as error:
        assert is_line(error)
    else:
        assert isinstance(found, Completion)
        usable([found.text, found.reasoning, *(call.arguments for call in found.tool_calls)])


_CALLED = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
_USED = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
_ASKS = {
    Chat: {"messages": [{"role": "user", "content": "hi"}], "tools": [], "stop": "x"},
    Responses: {"input": [_CALLED, {"role": "user", "content": "hi"}], "tools": []},
    Messages: {
        "messages": [{"role": "assistant", "content": [_USED]}, {"role": "user", "content": "hi"}],
        "system": [],
    },
}


@given(
    st.sampled_from(list(_ASKS)).flatmap(
        lambda form: st.tuples(st.just(form), with_field(_ASKS[form]).map(str.encode) | BYTES)
    )
)
def test_requests_to_the_gateway(asked):
    form, body = asked
    try:
        ask = form.read(body).ask
    except RequestError as error:
        assert is_line(error)
    else:
        usable([list(ask.messages), list(ask.tools), list(ask.stop)])
        Recorder().find(ask)


@few
@given(BYTES | with_field({"reward": 1, "other": 0.5}).map(str.encode))
def test_rewards_of_a_verifier(content):
    for name in ("reward.json", "reward.txt"):
        try:
            rewards = read_rewards(of_bytes(name, content))
        except CodingModelError as error:
            assert is_line(error)
        else:
            assert all(-1e400 < value < 1e400 for value in rewards.values())


@pytest.fixture(scope="module")
def server():
    with TestClient(
        create_app(FakeSandbox(), Admission(1, 512), Settings()), raise_server_exceptions=True
    ) as client:
        yield client


@few
@given(with_field({"code": "1", "language": "python", "stdin": "", "files": {}}) | JSON_TEXTS)
def test_requests_to_a_judge_server(server, body):
    headers = {"content-type": "application/json"}
    answer = server.post("/run_code", content=body.encode(), headers=headers)
    assert answer.status_code < 500
