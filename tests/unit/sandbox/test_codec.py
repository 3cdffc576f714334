"""The wire: every plain value survives it exactly, and hostile bytes give a value, no error."""

from __future__ import annotations

import json
import time
from collections import Counter, namedtuple

from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.sandbox.embedded import answers
from coding_model_project.types import Opaque

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30, max_value=10**60)
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
)
HASHABLE = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
PLAIN = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
    ),
    max_leaves=12,
)
MAX_BYTES = 1 << 20


def same(a: object, b: object) -> bool:
    """Equal in value and type at every depth; nan is nan and -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (set, frozenset)) and isinstance(b, (set, frozenset)):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


@given(PLAIN)
@settings(deadline=None)
def test_round_trip(value):
    assert same(answers.decode(answers.encode(value), MAX_BYTES), value)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_decode_to_something(data):
    answers.decode(data, MAX_BYTES)


PICTURES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("iftdszbco"), inner, min_size=1, max_size=2)
    ),
    max_leaves=8,
)


@given(PICTURES)
@settings(deadline=None)
def test_any_json_decodes_to_something(picture):
    answers.decode(json.dumps(picture).encode(), MAX_BYTES)


def test_subclasses_are_their_base_and_others_opaque():
    point = namedtuple("point", "x y")(1, 2)
    value = [Counter("aa"), point, object()]
    assert answers.decode(answers.encode(value), MAX_BYTES) == [{"a": 2}, (1, 2), Opaque("object")]


def test_too_much_or_too_deep_is_undecodable():
    assert answers.decode(answers.encode("x" * 100), 50) == answers.UNDECODABLE
    assert answers.decode(b"[" * 100_000 + b"]" * 100_000, MAX_BYTES) == answers.UNDECODABLE


def test_colliding_hashes_cost_nothing():
    elements = [{"i": hex(k * (2**61 - 1))} for k in range(1, 30_000)]
    started = time.process_time()
    for tag, content in (("s", elements), ("d", [[element, 0] for element in elements])):
        assert answers.decode(json.dumps({tag: content}).encode(), 1 << 24) == answers.UNDECODABLE
    assert time.process_time() - started < 20  # comparing each with each would take minutes


def test_some_colliding_hashes_among_others_are_refused_at_once():
    same = [{"i": hex(((1 << 61) - 1) * n)} for n in range(1, 20_000)]  # all hash to 0
    inner = {"z": same}
    for picture in ({"s": same + list(range(20_000))}, {"s": [inner, *range(1_100)]}):
        started = time.process_time()
        assert answers.decode(json.dumps(picture).encode(), MAX_BYTES) == answers.UNDECODABLE
        assert time.process_time() - started < 2
    many = list(range(50_000))
    assert answers.decode(json.dumps({"s": many}).encode(), MAX_BYTES) == set(many)
