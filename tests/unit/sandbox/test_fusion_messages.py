"""Values, requests to a driver and its answers survive the wire; hostile bytes are a value or none."""

import ast
import base64
import json
import tracemalloc
from collections import Counter, namedtuple
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.sandbox.carried import messages
from coding_model_project.sandbox.embedded import outcomes
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
from tests.strategies import PLAIN, exactly
from tests.unit.sandbox.fusion_servers import LIMITS, driver_answer

MAX_BYTES = 1 << 20


def same(a: object, b: object) -> bool:
    """Equal in value and type at every depth; nan is nan and -0.0 is not 0.0."""
    return exactly(a) == exactly(b)


@given(PLAIN)
def test_round_trip(value):
    assert same(outcomes.decode(outcomes.encode(value), MAX_BYTES), value)


PICTURES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("iftdszbco"), inner, min_size=1, max_size=2)
    ),
    max_leaves=8,
)


@given(st.binary(max_size=200) | PICTURES.map(json.dumps).map(str.encode))
def test_any_bytes_decode_to_something(data):
    outcomes.decode(data, MAX_BYTES)


def test_subclasses_are_their_base_and_others_opaque():
    point = namedtuple("point", "x y")(1, 2)
    value = [Counter("aa"), point, object()]
    assert outcomes.decode(outcomes.encode(value), MAX_BYTES) == [
        {"a": 2},
        (1, 2),
        Opaque("object"),
    ]


def test_numbers_of_numpy_are_what_they_hold_at_any_depth_and_its_other_values_opaque():
    held = {
        6: [np.int8(6), np.uint64(6), np.intp(6), np.array(6), np.arange(4).sum()],
        2**64 - 1: [np.uint64(2**64 - 1)],
        0.5: [np.float16(0.5), np.float32(0.5), np.float64(0.5), np.array(0.5)],
        1.5j: [np.complex64(1.5j), np.complex128(1.5j)],
        "a": [np.str_("a"), np.array("a")],
        b"a": [np.bytes_(b"a")],
        True: [np.bool_(True), np.all([1])],
    }
    for value, forms in held.items():
        for form in forms:
            found = outcomes.decode(outcomes.encode([{"a": (form,)}]), MAX_BYTES)
            assert same(found, [{"a": (value,)}]), repr(form)
    assert outcomes.decode(outcomes.encode({np.int64(1): {np.int64(2)}}), MAX_BYTES) == {1: {2}}
    others = [np.array([1]), np.datetime64(1, "ns"), np.dtype(int), np.add, np.int64]
    others += [np.array(None), np.array([(1, 2)], "i,i")[0], np.zeros((1, 1)), np.longdouble(1)]
    for value in others:
        assert type(outcomes.decode(outcomes.encode(value), MAX_BYTES)) is Opaque, repr(value)


def test_too_much_or_too_deep_is_undecodable():
    assert outcomes.decode(outcomes.encode("x" * 100), 50) == outcomes.UNDECODABLE
    assert outcomes.decode(b"[" * 100_000 + b"]" * 100_000, MAX_BYTES) == outcomes.UNDECODABLE


def _share_a_hash(n: int, first: int = 1) -> list[object]:
    """Pictures of different ints that all hash to 0."""
    return [{"i": hex(k * (2**61 - 1))} for k in range(first, first + n)]


@pytest.mark.parametrize(
    "picture",
    [
        {"s": _share_a_hash(20_000)},
        {"d": [[element, 0] for element in _share_a_hash(20_000)]},
        {"s": _share_a_hash(20_000) + list(range(20_000))},
        {"s": [{"z": _share_a_hash(20_000)}, *range(1_100)]},
        [{"s": _share_a_hash(900, 900 * n + 1)} for n in range(20)],
        {"s": [{"t": [element, 0]} for element in _share_a_hash(9_000)]},
    ],
    ids=["set", "dict", "among others", "in an element", "many small sets", "in tuples"],
)
def test_elements_that_share_a_hash_are_refused_and_not_compared(picture):
    assert outcomes.decode(json.dumps(picture).encode(), MAX_BYTES) == outcomes.UNDECODABLE


def test_equal_elements_and_few_that_share_a_hash_are_honest():
    objects = outcomes.encode([object() for _ in range(5_000)])
    assert outcomes.decode(b'{"s": %s}' % objects, MAX_BYTES) == {Opaque("object")}
    few = {*(k * (2**61 - 1) for k in range(12)), *range(1, 50_000)}
    assert outcomes.decode(outcomes.encode(few), MAX_BYTES) == few


@pytest.mark.parametrize("element", ["[]", "{}", '{"s":[]}', '{"d":[]}', '{"t":[]}', '""', "0.5"])
def test_memory_is_bounded_by_the_length_of_an_answer(element):
    answer = b"[" + b",".join([element.encode()] * (200_000 // (len(element) + 1))) + b"]"
    tracemalloc.start()
    try:
        outcomes.decode(answer, MAX_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 40 * len(answer)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"t":[', "]}"), ('{"z":[', "]}")])
def test_what_nests_deeper_than_the_encoder_writes_is_undecodable(opening, closing):
    def nested(n: int) -> bytes:
        return (opening * n + "1" + closing * n).encode()

    assert outcomes.decode(nested(100), MAX_BYTES) != outcomes.UNDECODABLE
    for n in (102, 500, 100_000):
        assert outcomes.decode(nested(n), MAX_BYTES) == outcomes.UNDECODABLE


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
def test_answers_of_a_batch_survive_the_way(programs):
    request = request_of(*(task_of(*[Stdin("")] * len(executions)) for executions in programs))
    sent = [list(map(running._to_json, one)) for one in programs]
    found = messages.decode_batch(answered(*sent), request)
    for got, executions in zip(found.outcomes, programs, strict=True):
        for one, other in zip(got.executions, executions, strict=True):
            assert same(one.value, other.value) or one.value == other.value
            assert replace(one, value=None) == replace(other, value=None)


@given(st.lists(st.text(), max_size=2), st.data())
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
    for more in ([[one] * 2], [[one]] * 2):
        with pytest.raises(messages.NotAnAnswer):
            messages.decode_batch(answered(*more), request)
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
