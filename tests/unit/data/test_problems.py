"""Problems survive a file exactly, and bad lines name themselves."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project import codec
from coding_model_project.data.governance import why_not_shared
from coding_model_project.data.problem_rows import FIELDS
from coding_model_project.data.problems import (
    ProblemFile,
    problem_from_json,
    problem_line,
    read_problems,
    write_problems,
)
from coding_model_project.errors import DataError
from coding_model_project.grading.brief import ordered_repr, shown_value
from coding_model_project.grading.cache import PerProblem
from coding_model_project.types import Asserts, Call, Isolation, Limits, Problem, Stdin, Test
from tests.strategies import exactly, plain_values
from tests.tables import tables

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


def test_a_row_can_state_every_field():
    assert {one.name for one in fields(Problem)} == set(FIELDS) - {"grader"}


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


# ── malformed rows ─────────────────────────────────────────────────────────────────────────────────


CASES = tables("problem_rows")

CALL = {"call": "f", "args": [1], "expected": 2}
ROW = {"id": "a/1", "split": "train", "statement": "?", "tests": [CALL]}
INTERNALS = re.compile(
    r"NoneType|unexpected keyword|not iterable|unhashable|__init__|object has no attribute|"
    r"indices must be|not subscriptable|\bdict\b object|\bargument\b|invalid literal|Traceback"
)

MALFORMED = CASES["malformed"]


@pytest.mark.parametrize(
    ("change", "field", "expected"), MALFORMED, ids=lambda value: str(value)[:50]
)
def test_a_malformed_row_is_one_line_with_file_line_field_and_right_form(
    tmp_path, change, field, expected
):
    path = tmp_path / "p.jsonl"
    path.write_bytes(orjson.dumps(ROW) + b"\n" + orjson.dumps({**ROW, "id": "a/2", **change}))
    with pytest.raises(DataError) as caught:
        read_problems(path)
    said = str(caught.value)
    assert said.startswith(f"{path}:2: ")
    assert field in said
    assert expected in said
    assert "\n" not in said
    assert not INTERNALS.search(said)


def test_a_tolerance_beyond_all_floats_is_malformed():
    with pytest.raises(DataError, match=r"f:1: field 'atol': expected a number of at least 0, got"):
        problem_from_json({**ROW, "atol": 10**400}, "f:1")


def test_a_missing_field_names_the_columns_and_the_option_that_maps_one():
    row = {"task_id": 1, "question": "?", "tests": [CALL]}
    with pytest.raises(DataError) as caught:
        problem_from_json({**row, "id": "a/1", "split": "train"}, "f:1")
    said = str(caught.value)
    assert "field 'statement' is missing" in said
    assert "row has columns task_id, question, tests" in said
    assert "--map statement=question" in said


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        ({"t": [1], "d": []}, {"t": [1], "d": []}),
        ({"a": {"xs": [{"t": [1, 2]}]}}, {"a": {"xs": [(1, 2)]}}),
        ({"d": [["t", 5]]}, {"t": 5}),
        ({"t": [1, 2]}, (1, 2)),
        ([{"x": None}], [{"x": None}]),
    ],
    ids=str,
)
def test_a_plain_object_is_a_dict_wherever_a_value_stands(written, value):
    test = {"call": "f", "args": [written], "expected": written}
    problem = problem_from_json({**ROW, "tests": [test]}, "here")
    assert problem.tests[0].input.args == (value,)
    assert problem.tests[0].expected == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*"ifdtszbco", "a", "call", "args", "stdin"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
KEYS = [
    *ROW,
    *["gold", "bad", "tags", "limits", "checker", "grader", "task", "difficulty", "language"],
]


@given(field=st.sampled_from(KEYS), content=JSON, as_args=st.booleans())
def test_no_row_of_json_ends_in_anything_but_a_message(field, content, as_args):
    row = {**ROW, field: content}
    if as_args:
        row = {**ROW, "tests": [{"call": "f", "args": [content], "expected": content}]}
    try:
        problem_from_json(json.loads(json.dumps(row)), "f:1")
    except DataError as error:
        assert not INTERNALS.search(str(error))
        assert str(error).startswith("f:1: ")


# ── problems read by id ───────────────────────────────────────────────────────────────────────────


def numbered(number, expected="3"):
    tests = (Test(input=Stdin("1 2"), expected=expected),)
    return Problem(id=f"mine/{number}", split="train", statement="Add.", tests=tests)


@pytest.fixture
def file_path(tmp_path, monkeypatch):
    monkeypatch.setenv("CODING_DATA_CACHE", str(tmp_path / "cache"))
    file_path = tmp_path / "data" / "problems.jsonl"
    write_problems(file_path, map(numbered, range(9)))
    return file_path


def test_problems_are_read_by_id_in_the_order_of_the_file(file_path):
    file = ProblemFile(file_path)
    assert file["mine/7"] == numbered(7)
    assert list(file) == [f"mine/{n}" for n in range(9)]
    assert tuple(file.values()) == tuple(map(numbered, range(9)))
    assert (len(file), file.get("mine/10")) == (9, None)


@pytest.mark.slow
def test_one_object_while_a_problem_is_in_use_and_none_afterwards(file_path):
    file, calls = ProblemFile(file_path), []
    digest = PerProblem(lambda one: calls.append(one.id) or len(calls))
    one = file["mine/1"]
    assert file["mine/1"] is one
    assert (digest(one), digest(file["mine/1"])) == (1, 1)
    del one
    gc.collect()
    assert digest(file["mine/1"]) == 2


@pytest.mark.parametrize("written", [True, False])
def test_a_file_that_was_written_by_hand_or_changed_gets_an_index(file_path, written):
    index = file_path.with_name("problems.jsonl.index")
    if not written:
        index.unlink()
    file_path.write_bytes(
        b"\n" + problem_line(numbered(20, "4")) + b"\n\n" + problem_line(numbered(21))
    )
    assert list(ProblemFile(file_path).values()) == [numbered(20, "4"), numbered(21)]
    made = index.stat().st_ino
    assert ProblemFile(file_path)["mine/21"] == numbered(21)
    assert index.stat().st_ino == made


def test_a_read_only_folder_has_its_index_in_the_cache(file_path, tmp_path, monkeypatch):
    def refused(self, data):
        if self.parent == file_path.parent:
            raise PermissionError(13, "Permission denied", str(self))
        with self.open("wb") as file:
            return file.write(data)

    file_path.with_name("problems.jsonl.index").unlink()
    monkeypatch.setattr("pathlib.Path.write_bytes", refused)
    assert len(ProblemFile(file_path)) == 9
    assert list(file_path.parent.iterdir()) == [file_path]
    assert ProblemFile(file_path)["mine/3"] == numbered(3)
    assert len(list((tmp_path / "cache" / "indices").iterdir())) == 1


def test_bad_lines_name_themselves(file_path):
    with file_path.open("ab") as file:
        file.write(orjson.dumps({"id": "mine/30", "split": "train"}) + b"\n")
    with pytest.raises(DataError, match=r"problems.jsonl:10: "):
        ProblemFile(file_path)
    file_path.write_bytes(problem_line(numbered(1)) * 2)
    with pytest.raises(DataError, match=r":2: id 'mine/1' occurs twice"):
        ProblemFile(file_path)


@pytest.mark.slow
def test_a_file_that_is_replaced_stays_as_it_was_opened_and_one_changed_in_place_is_an_error(
    file_path,
):
    file = ProblemFile(file_path)
    write_problems(file_path, [numbered(5, "5")])
    assert file["mine/5"] == numbered(5)
    gc.collect()
    file = ProblemFile(file_path)
    file_path.write_bytes(problem_line(numbered(6, "6")))
    with pytest.raises(DataError, match="has changed"):
        file["mine/5"]
