"""Requests to the driver on a SandboxFusion server, its answers, and its code."""

from __future__ import annotations

import ast
import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.sandbox.fusion import bundle, driver_messages
from coding_model_project.types import Asserts, Call, Execution, Opaque, Program, Status, Stdin
from tests.unit.sandbox.fusion_servers import LIMITS
from tests.unit.sandbox.test_codec import PLAIN, same


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
            for name in ("status", "stdout", "exit_code"):
                assert getattr(one, name) == getattr(other, name)


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
