"""The wire: every plain value survives it exactly, and hostile bytes give a value, no error."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter, namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.sandbox.embedded import outcomes
from coding_model_project.types import Opaque
from tests.strategies import PLAIN, exactly

MAX_BYTES = 1 << 20


def same(a: object, b: object) -> bool:
    """Equal in value and type at every depth; nan is nan and -0.0 is not 0.0."""
    return exactly(a) == exactly(b)


@given(PLAIN)
@settings(deadline=None)
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
@settings(deadline=None)
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
