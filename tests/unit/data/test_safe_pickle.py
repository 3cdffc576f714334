"""A pickle is a program: only plain data may come out of one, and nothing may happen on the way."""

import base64
import os
import pickle
import struct
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coding_model_project.data.loaders.safe_pickle import HostilePickle, decode, loads

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
HASHABLE = st.recursive(LEAVES, lambda inner: st.tuples(inner, inner), max_leaves=3)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
        | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=8,
)
EXACT = {type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset}
CANARY = []
GLOBALS = st.sampled_from(
    [
        ("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "exec"),
        ("builtins", "getattr"), ("subprocess", "Popen"), ("codecs", "encode"), ("os", "_exit"),
        ("tests.unit.data.test_safe_pickle", "spring"), ("copyreg", "_reconstructor"),
        ("functools", "partial"), ("collections", "OrderedDict"), ("_codecs", "encode"),
    ]
)  # fmt: skip


def spring(*_):
    """A function that a hostile pickle would call."""
    CANARY.append(1)
    return "sprung"


class Bomb:
    def __init__(self, function, args):
        self.how = function, args

    def __reduce__(self):
        return self.how


def types_within(value):
    yield type(value)
    if isinstance(value, dict):
        for pair in value.items():
            yield from types_within(pair)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from types_within(item)


@settings(max_examples=150, deadline=None)
@given(value=PLAIN, protocol=st.sampled_from([2, 3, 4, 5]))
def test_plain_data_comes_out_as_it_went_in(value, protocol):
    data = pickle.dumps(value, protocol)
    try:
        assert loads(data) == value
    except HostilePickle:
        # Protocols before 4 spell sets, and 2 spells bytes, as calls: refused rather than run.
        assert protocol < 4


@settings(max_examples=150, deadline=None)
@given(
    where=GLOBALS,
    beside=PLAIN,
    how=st.sampled_from(["global", "stack_global", "inst", "obj", "newobj"]),
    protocol=st.integers(0, 5),
)
def test_no_name_is_ever_resolved(where, beside, how, protocol):
    module, name = where
    text = lambda s: b"\x8c" + bytes([len(s)]) + s.encode()  # noqa: E731
    named = f"{module}\n{name}\n".encode()
    body = {
        "global": b"c" + named + b"(" + text("true") + b"tR",
        "stack_global": text(module) + text(name) + b"\x93(" + text("true") + b"tR",
        "inst": b"(" + text("true") + b"i" + named,
        "obj": b"(c" + named + text("true") + b"o",
        "newobj": b"c" + named + b")\x81",
    }[how]
    inner = pickle.dumps(beside, min(protocol, 3)).rstrip(b".")
    if inner[:1] == b"\x80":
        inner = inner[2:]
    CANARY.clear()
    with pytest.raises(HostilePickle):
        loads(b"\x80\x04" + inner + b"0" + body + b".")
    assert CANARY == []


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [spring, os.getenv, eval, pickle.loads, bytearray, complex])
def test_reduced_objects_are_refused(function, protocol):
    CANARY.clear()
    with pytest.raises(HostilePickle):
        loads(pickle.dumps([Bomb(function, ("1",))], protocol))
    assert CANARY == []


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
@example(b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.")
@example(b"\x80\x02\x82\x01.")
@example(b"Pabc\n.")
@example(b"\x80\x04Q.")
@example(b"(lp99999999999999999999\n.")
def test_any_bytes_give_plain_data_or_are_refused(data):
    CANARY.clear()
    try:
        value = loads(data)
    except HostilePickle:
        return
    assert set(types_within(value)) <= EXACT
    assert CANARY == []


@settings(max_examples=200, deadline=None)
@given(value=PLAIN, position=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_changed_byte_gives_plain_data_or_is_refused(value, position, byte):
    data = bytearray(pickle.dumps(value))
    data[position % len(data)] = byte
    try:
        found = loads(bytes(data))
    except HostilePickle:
        return
    assert set(types_within(found)) <= EXACT


def test_a_few_bytes_cannot_ask_for_gigabytes_of_memo():
    with pytest.raises(HostilePickle, match="memo"):
        loads(b"\x80\x02]r" + struct.pack("<I", 2**31) + b".")


def test_unpacking_is_bounded():
    packed = base64.b64encode(zlib.compress(pickle.dumps("x" * 10_000))).decode()
    assert decode(packed) == "x" * 10_000
    with pytest.raises(HostilePickle, match="more than"):
        decode(packed, max_bytes=5_000)


@pytest.mark.parametrize(
    "text", ["", "§", "aGVsbG8=", base64.b64encode(zlib.compress(b"I1\n")).decode()]
)
def test_what_is_not_packed_is_refused(text):
    with pytest.raises(HostilePickle):
        decode(text)
