"""A pickle is a program: only a text may come out of one, and nothing may happen on the way."""

import base64
import os
import pickle
import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coding_model_project.data.loaders.files import HostilePickle, decode, text_of
from tests.strategies import PLAIN

CANARY = []


def spring(*_):
    """A function that a hostile pickle would call."""
    CANARY.append(1)
    return "sprung"


class Bomb:
    def __init__(self, function, args):
        self.how = function, args

    def __reduce__(self):
        return self.how


@given(text=st.text(st.characters()), protocol=st.sampled_from(range(6)))
def test_a_text_comes_out_as_it_went_in(text, protocol):
    assert text_of(pickle.dumps(text, protocol)) == text


@given(value=PLAIN, protocol=st.sampled_from(range(6)))
def test_other_values_are_refused(value, protocol):
    if not isinstance(value, str):
        with pytest.raises(HostilePickle):
            text_of(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [spring, os.getenv, eval, pickle.loads, bytearray, complex])
def test_reduced_objects_are_refused(function, protocol):
    CANARY.clear()
    with pytest.raises(HostilePickle):
        text_of(pickle.dumps([Bomb(function, ("1",))], protocol))
    assert CANARY == []


@given(data=st.binary(max_size=200))
@example(b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.")
@example(b"\x80\x02\x82\x01.")
@example(b"Pabc\n.")
@example(b"\x80\x04cos\nsystem\n(\x8c\x04truetR.")
@example(b"\x80\x04\x8c\x02os\x8c\x06system\x93(\x8c\x04truetR.")
@example(b"(\x8c\x04trueios\nsystem\n.")
@example(b"(cos\nsystem\n\x8c\x04trueo.")
@example(b"cos\nsystem\n)\x81.")
@example(b"\x80\x04Q.")
@example(b"(lp99999999999999999999\n.")
def test_any_bytes_give_a_text_or_are_refused(data):
    CANARY.clear()
    try:
        value = text_of(data)
    except HostilePickle:
        return
    assert type(value) is str
    assert CANARY == []


def test_a_few_bytes_cannot_ask_for_gigabytes_of_memo():
    with pytest.raises(HostilePickle, match="EMPTY_LIST"):
        text_of(b"\x80\x02]r" + struct.pack("<I", 2**31) + b".")


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
