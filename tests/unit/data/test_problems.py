"""Problems survive a file exactly, and bad lines name themselves."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project import codec
from coding_model_project.data.governance import why_not_shared
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.errors import DataError
from coding_model_project.grading.brief import ordered_repr, shown_value
from coding_model_project.types import Asserts, Call, Isolation, Limits, Problem, Stdin, Test
from tests.strategies import exactly, plain_values

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_, PLAIN = plain_values(TEXT)
INPUTS = st.one_of(
    TEXT.map(Stdin),
    st.builds(Call, function=TEXT, args=st.lists(PLAIN, max_size=3).map(tuple)),
    st.builds(Asserts, source=TEXT, entry_point=st.none() | TEXT),
)
TUPLES = st.lists(TEXT, max_size=2).map(tuple)
PROBLEMS = st.builds(
    Problem,
    id=TEXT,
    split=TEXT | st.just("test"),
    statement=TEXT,
    tests=st.lists(
        st.builds(Test, input=INPUTS, expected=PLAIN, public=st.booleans()).map(
            lambda test: replace(test, expected="3") if isinstance(test.input, Stdin) else test
        ),
        max_size=3,
    ).map(tuple),
    limits=st.builds(Limits, cpu_s=st.floats(0.1, 100.0), memory_mb=st.integers(1, 10_000)),
    comparison=TEXT,
    isolation=st.sampled_from(Isolation),
    atol=st.sampled_from([1e-6, 0.0, 0.01]),
    rtol=st.sampled_from([1e-6, 0.0, 1e-9]),
    entry_point=st.none() | TEXT,
    difficulty=st.none() | st.integers(1, 5),
    tags=TUPLES,
    gold=TUPLES,
    bad=TUPLES,
).filter(lambda problem: why_not_shared(problem) is None)


def pictured(problem):
    tests = [
        (type(t.input), exactly(getattr(t.input, "args", ())), exactly(t.expected), t.public)
        for t in problem.tests
    ]
    names = [f for f in Problem.__dataclass_fields__ if f != "tests"]
    texts = [
        (getattr(t.input, "text", None), getattr(t.input, "source", None)) for t in problem.tests
    ]
    return [getattr(problem, name) for name in names], texts, tests


@settings(max_examples=50, deadline=None)
@given(problems=st.lists(PROBLEMS, max_size=3, unique_by=lambda problem: problem.id))
def test_round_trip(problems, tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "p.jsonl"
    write_problems(path, problems)
    back = read_problems(path)
    assert [pictured(p) for p in back] == [pictured(p) for p in problems]


def test_writing_leaves_no_half_file(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"old\n")

    def broken():
        yield Problem(id="a/1", split="train", statement="?", tests=())
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_problems(path, broken())
    assert path.read_bytes() == b"old\n"


GOOD = {"id": "a/1", "split": "train", "statement": "?", "tests": [{"stdin": "", "expected": ""}]}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", ""),
        (b"[]", "not a JSON object"),
        (b"[{", ".json"),
        (orjson.dumps({**GOOD, "colour": 1}), "colour"),
        (orjson.dumps(GOOD), "'a/1' occurs twice"),
        (b'{"id": "\\ud800"}', "invalid JSON"),
        (b'{"id": "\xe4"}', "iconv"),
    ],
)
def test_a_bad_line_names_file_line_and_field(tmp_path, line, complaint):
    path = tmp_path / "p.jsonl"
    path.write_bytes(orjson.dumps(GOOD) + b"\n\n" + line + b"\n")
    with pytest.raises(DataError) as caught:
        read_problems(path)
    assert f"{path}:3" in str(caught.value)
    assert complaint in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        read_problems(tmp_path / "nowhere.jsonl")


SETS = Path(__file__).with_name("written_sets.txt").read_text()
"""A program that prints all that is made of a file of problems."""
WORDS = ["pear", "fig", "plum", "date", "kiwi"]
NESTED = {
    "d": [
        [{"z": [*WORDS, 10, 9, {"t": ["a", {"z": WORDS}]}]}, {"s": [{"z": WORDS}, {"b": "00"}]}],
        ["none", {"s": [None, True, 2.5, {"f": "nan"}, "x"]}],
    ]
}


@pytest.mark.slow
def test_sets_are_written_alike_in_every_process(tmp_path):
    """The salt of text's hashes must not get into lines, versions, digests, messages or tasks."""
    test = {"call": "f", "args": [{"s": WORDS}], "expected": NESTED}
    row = {"id": "mine/1", "split": "test", "statement": "…", "tests": [test]}
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(row | {"gold": ["def f(s):\n    return s\n"]}))
    found = set()
    for seed in ("0", "1"):
        found.add(
            subprocess.run(
                [sys.executable, "-c", SETS, str(file), str(tmp_path / seed)],
                env={**os.environ, "PYTHONHASHSEED": seed},
                stdout=subprocess.PIPE,
                check=True,
                timeout=100,
            ).stdout
        )
    (text,) = found
    members = "'date', 'fig', 'kiwi', 'pear', 'plum'"
    assert f"f({{{members}}})".encode() in text
    assert f"frozenset({{9, 10, {members}, ('a', frozens".encode() in text


def nested_sets(depth: int, width: int) -> frozenset:
    value = frozenset()
    for _ in range(depth):
        value = frozenset([value, *((number, number) for number in range(width))])
    return value


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ([nested_sets(40, 5)], "[frozenset({"),
        ([nested_sets(95, 1000)], "[a frozenset of 1001]"),
        ([[1] * 10] * 100_000, "[[1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, "),
        ({"a": "x" * 10**7, 1: ()}, "{'a': 'xxx"),
        ([10**4000] * 10**5, "[1000"),
        (set(range(10**5)), "a set of 100000"),
    ],
)
def test_details_of_large_values_take_no_time(value, start):
    started = time.process_time()
    shown = shown_value(value, 900)
    assert time.process_time() - started < 1.0
    assert shown.startswith(start) and len(shown.encode()) <= 900


def test_numbers_of_a_set_are_written_by_value():
    assert codec.to_json({10, 9, -1, 2.5, "9"}) == {"s": [-1, 2.5, 9, 10, "9"]}
    assert ordered_repr([{10, 9, "9"}, set(), frozenset()]) == "[{9, 10, '9'}, set(), frozenset()]"
    assert ordered_repr(({1: (2,)}, [{}])) == "({1: (2,)}, [{}])"
