"""Rows of files as written, whatever the file is called; a pickle gives a text and does nothing."""

from __future__ import annotations

import base64
import gzip
import os
import pickle
import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coding_model_project.data.loaders.files import HostilePickle, decode, read_rows, text_of
from coding_model_project.errors import DataError
from tests.strategies import PLAIN

ROWS = [
    {
        "id": number,
        "tests": {"input": ["1\n", "2\n"], "output": ["1"]},
        "cases": [{"in": "a", "out": [1.5]}, {"in": "b", "out": None}],
        "empty": [],
        "none": None if number % 2 else "x",
        "raw": b"\x00\xff",
        'quo"ted': 2**60 + number,
    }
    for number in range(200)
]


def test_rows_come_back_as_written(tmp_path):
    path = tmp_path / "odd [1] *name?.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=30)
    found = list(read_rows(path))
    assert [row for _, row in found] == ROWS
    assert found[0][0] == f"{path} row 1"
    (_, first), *_ = read_rows(path, ["tests", "id", "unknown"])
    assert first == {"id": 0, "tests": ROWS[0]["tests"]}


@pytest.mark.parametrize("content", [b"", b"not parquet", b"PAR1" + bytes(50) + b"PAR1"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "bad.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path} row 1: unreadable parquet: "):
        list(read_rows(path))


def bytes_as_int8(n):
    return pa.Array.from_buffers(pa.int8(), n, [None, pa.py_buffer(bytes(n))])


@pytest.mark.slow
def test_a_small_file_that_unfolds_to_a_large_one_is_refused_before_it_is_read(tmp_path):
    text, n = "x" * (1 << 20), 150
    same = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([text]))
    lists = pa.array([[{"a": [text]}] for _ in range(n)])
    offsets = range(0, (n + 1) * 200_000, 200_000)
    zeros = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), bytes_as_int8(n * 200_000))
    for column in (same, lists, zeros):
        path = tmp_path / "small.parquet"
        pq.write_table(pa.table({"statement": column}), path, compression="zstd")
        assert path.stat().st_size < 100_000
        with pytest.raises(DataError, match="unfolds to more than 100 times its size"):
            next(read_rows(path))


@pytest.mark.slow
def test_a_small_gzip_file_of_one_long_line_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(b'{"id": "' + b"x" * (160 << 20) + b'"}\n')
    with pytest.raises(DataError, match=r"rows.jsonl.gz:1: the file unfolds to more than"):
        next(read_rows(path))


def test_an_arrow_stream_that_unfolds_is_refused(tmp_path):
    path = tmp_path / "rows.arrow"
    same = pa.DictionaryArray.from_arrays(
        pa.array([0] * 300, pa.int32()), pa.array(["x" * (1 << 20)])
    )
    table = pa.table({"statement": same})
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(DataError, match="unfolds to more than"):
        list(read_rows(path))


# ── a pickle is a program ─────────────────────────────────────────────────────────────────────────


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
