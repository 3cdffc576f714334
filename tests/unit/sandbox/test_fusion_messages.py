"""Requests to the driver on a SandboxFusion server, its answers, and its code."""

from __future__ import annotations

import ast
import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.sandbox.carried import messages
from coding_model_project.sandbox.fusion import capabilities
from coding_model_project.server import running
from coding_model_project.server.running import BatchRequest, decoded
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Files,
    Opaque,
    Program,
    Status,
    Stdin,
)
from tests.unit.sandbox.fusion_servers import LIMITS, driver_answer
from tests.unit.sandbox.test_codec import PLAIN, same


def task_of(*inputs, **fields) -> messages.Task:
    return messages.Task(program=Program(**{"source": "x"} | fields), inputs=inputs, limits=LIMITS)


def request_of(*tasks, secret: bytes = b"s" * 16) -> messages.Request:
    return messages.Request(secret=secret, tasks=tasks, budget_s=1.0)


def answered(*executions: list[dict]) -> bytes:
    """An answer of /run_batch with each program's executions."""
    outcomes = [{"executions": one, "lost": None, "error": None} for one in executions]
    return json.dumps({"identity": "t/p", "programs": outcomes}).encode("ascii")


INPUTS = (
    st.builds(Stdin, st.text())
    | st.builds(
        Call,
        function=st.text(),
        args=st.lists(PLAIN, max_size=3).map(tuple),
        continues=st.booleans(),
    )
    | st.builds(Asserts, source=st.text(), entry_point=st.none() | st.text())
    | st.builds(Files, contents=st.dictionaries(st.text(), st.text(), max_size=2))
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
OUTCOMES = st.lists(st.lists(EXECUTIONS, max_size=3), max_size=3)


@given(st.lists(TASKS, max_size=3))
@settings(deadline=None)
def test_requests_survive_the_way(tasks):
    request = request_of(*tasks)
    sent = json.dumps(messages.batch(request))  # as FastAPI reads it
    found = BatchRequest.model_validate(json.loads(sent))
    assert found.budget_s == request.budget_s
    for got, task in zip(found.programs, request.tasks, strict=True):
        assert (got.source, decoded(got.files)) == (task.program.source, task.program.files)
        assert (got.language, got.limits) == (task.program.language, task.limits)
        for picture, other in zip(got.inputs, task.inputs, strict=True):
            one = running._input(picture)
            if isinstance(other, Call) and isinstance(one, Call):
                assert (one.function, one.continues) == (other.function, other.continues)
                assert same(one.args, other.args)
            else:
                assert one == other


@given(OUTCOMES)
@settings(deadline=None)
def test_answers_of_a_batch_survive_the_way(programs):
    request = request_of(*(task_of(*[Stdin("")] * len(executions)) for executions in programs))
    sent = [list(map(running._to_json, one)) for one in programs]
    found = messages.decode_batch(answered(*sent), request)
    for got, executions in zip(found.outcomes, programs, strict=True):
        for one, other in zip(got.executions, executions, strict=True):
            assert same(one.value, other.value) or one.value == other.value
            assert replace(one, value=None) == replace(other, value=None)


@given(st.lists(st.text(), max_size=2), st.data())
@settings(deadline=None)
def test_a_cut_or_changed_answer_of_a_driver_is_none(lost, data):
    request = request_of(*[task_of(Stdin(""))] * 2)
    whole = driver_answer(*lost, secret=request.secret)
    found = messages.decode_answer(whole, request)
    assert [outcome.lost for outcome in found.outcomes] == lost
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for cut in (whole[:at], changed, whole + b"x"):
        with pytest.raises(messages.NotAnAnswer):
            messages.decode_answer(cut, request)


def test_an_answer_signed_with_another_secret_is_none():
    request = request_of(task_of(Stdin("")))
    for secret in (b"", b"t" * 16):
        with pytest.raises(messages.NotAnAnswer):
            messages.decode_answer(driver_answer("", secret=secret), request)


def test_more_answers_than_inputs_or_programs_are_none():
    request = request_of(task_of(Stdin("")))
    one = running._to_json(Execution(status=Status.finished))
    for outcomes in ([[one] * 2], [[one]] * 2):
        with pytest.raises(messages.NotAnAnswer):
            messages.decode_batch(answered(*outcomes), request)
    with pytest.raises(messages.NotAnAnswer):
        messages.decode_answer(driver_answer("", "", secret=request.secret), request)


@given(st.text())
def test_any_text_is_refused_as_an_answer_of_a_batch(text):
    with pytest.raises(messages.NotAnAnswer):
        messages.decode_batch(text.encode(), request_of(task_of(Stdin(""))))


def sources() -> dict[str, str]:
    """The modules that are sent to be compiled."""
    (given,) = capabilities.build_body()["files"].values()
    return json.loads(base64.b64decode(given))["sources"]


def test_the_driver_brings_the_sandbox_and_nothing_that_judges():
    modules = sources()
    assert "coding_model_project/sandbox/embedded/zygote.py" in modules
    assert not [name for name in modules if "grading" in name or name.endswith("/client.py")]


def test_the_driver_is_python_3_10():
    for source in sources().values():
        ast.parse(source, feature_version=(3, 10))


def test_the_driver_imports_nothing_that_takes_longer_than_a_test():
    slow = ("dataclasses", "inspect", "logging", "pathlib", "platform", "socket", "subprocess")
    for name, source in sources().items():
        imports = [one for one in ast.parse(source).body if isinstance(one, ast.Import)]
        found = {alias.name for one in imports for alias in one.names}
        found |= {one.module for one in ast.parse(source).body if isinstance(one, ast.ImportFrom)}
        assert found.isdisjoint(slow), name
