"""Errors about malformed files of problems name the field and its right form."""

import json
import re

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.data.problems import problem_from_json, read_problems
from coding_model_project.errors import DataError

CALL = {"call": "f", "args": [1], "expected": 2}
GOOD = {"id": "a/1", "split": "train", "statement": "?", "tests": [CALL]}
INTERNALS = re.compile(
    r"NoneType|unexpected keyword|not iterable|unhashable|__init__|object has no attribute|"
    r"indices must be|not subscriptable|\bdict\b object|\bargument\b|invalid literal|Traceback"
)

MALFORMED = [
    # what is in the row, the field that is named, a part of what is expected
    ({"gold": "print(1)"}, "field 'gold'", 'write "gold": ["print(1)"]'),
    ({"gold": [None]}, "field 'gold[0]'", "expected text, got null"),
    ({"publisher": "Codeforces"}, "field 'publisher'", "expected one of livecodebench, "),
    ({"tags": "lists"}, "field 'tags'", 'write "tags": ["lists"]'),
    ({"tests": CALL}, "field 'tests'", "expected a list of tests, got an object"),
    ({"tests": "assert f(1)"}, "field 'tests'", 'got the text "assert f(1)"'),
    ({"tests": [[]]}, "field 'tests[0]'", "got an empty list"),
    ({"tests": [CALL, {}]}, "field 'tests[1]'", "one of stdin, call, asserts"),
    ({"tests": [{"input": "1", "output": "2"}]}, "field 'tests[0]'", '{"stdin": "1 2"'),
    ({"tests": [{"call": "f", "args": 1, "expected": 2}]}, "'tests[0].args'", "the number 1"),
    ({"tests": [{"call": "f", "expected": 2}]}, "field 'tests[0].args'", "is missing"),
    ({"tests": [{"call": "f", "arg": [1], "expected": 2}]}, "field 'tests[0].arg'", "unknown"),
    ({"tests": [{"call": None, "args": [], "expected": 1}]}, "'tests[0].call'", "expected text"),
    ({"tests": [{"stdin": "", "expected": 5}]}, "tests[0].expected'", "expected output as text"),
    (
        {"tests": [{**CALL, "public": "yes"}]},
        "tests[0].public'",
        'true or false, got the text "yes"',
    ),
    ({"tests": [{"asserts": ["assert f()"]}]}, "tests[0].asserts'", "got a list"),
    ({"tests": [{"asserts": "", "entry_point": 1}]}, "tests[0].entry_point'", "got the number 1"),
    ({"tests": [{**CALL, "args": [{"t": 1}]}]}, "tests[0].args[0]'", '{"d": [["t", 1]]}'),
    ({"tests": [{**CALL, "args": [{"d": [[[1], 2]]}]}]}, "args[0]'", 'write a tuple {"t": [1, 2]}'),
    ({"tests": [{**CALL, "args": [{"s": [{"a": 1}]}]}]}, "args[0]'", 'write a tuple {"t": [1, 2]}'),
    ({"tests": [{**CALL, "expected": {"i": "seven"}}]}, "tests[0].expected'", "a large integer"),
    ({"tests": [{**CALL, "expected": {"b": "xyz"}}]}, "tests[0].expected'", "bytes"),
    ({"tests": [{**CALL, "expected": {"c": [1]}}]}, "tests[0].expected'", "a complex number"),
    ({"tests": [{**CALL, "expected": {"o": "Thing"}}]}, "tests[0].expected'", "not data"),
    ({"limits": [5]}, "field 'limits'", "expected an object with cpu_s"),
    ({"limits": {"time": 5}}, "field 'limits.time'", "cpu_s, wall_s, memory_mb, output_kb"),
    ({"limits": {"cpu_s": -1}}, "limits.cpu_s'", "above 0, got the number -1"),
    ({"limits": {"memory_mb": 2**63}}, "limits.memory_mb'", "a whole number above 0, got"),
    ({"difficulty": 2**63}, "field 'difficulty'", "got the number 9223372036854775808"),
    ({"limits": {"memory_mb": 0.5}}, "limits.memory_mb'", "a whole number above 0, got"),
    ({"tests": [{**CALL, "a\nb": 1}]}, "field 'tests[0].a b'", "unknown; expected call, args"),
    ({"id": 7}, "field 'id'", 'write "id": "mine/1"'),
    ({"comparison": 1}, "field 'comparison'", '"comparison": "tokens"'),
    ({"isolation": 1}, "field 'isolation'", "expected one of per_test, shared, got the number 1"),
    ({"isolation": "shared"}, "field 'isolation'", "the split 'train' of a may train"),
    ({"atol": -1}, "field 'atol'", 'got the number -1; write "atol": 1e-6'),
    ({"rtol": True}, "field 'rtol'", "got true"),
    ({"tolerance": 1}, "field 'tolerance': unknown", "atol, rtol"),
    ({"difficulty": "hard"}, "field 'difficulty'", 'a whole number or null, got the text "hard"'),
    ({"entry_point": []}, "field 'entry_point'", "text or null, got an empty list"),
    ({"checker": {"source": "", "lang": "cpp"}}, "field 'checker.lang'", "unknown"),
    ({"checker": {"source": "", "protocol": ["x"]}}, "checker.protocol'", "one of testlib, score"),
    (
        {"grader": "docker"},
        "field 'grader'",
        "expected one of tests, math, instructions, prediction, harness, harbor",
    ),
    (
        {"grader": "harness", "tests": (), "harness": {"before": ""}},
        "field 'harness.after'",
        "is missing",
    ),
    ({"grader": "harbor"}, "field 'task' is missing", 'with "grader": "harbor" needs'),
    (
        {"grader": "harbor", "task": "t"},
        "field 'tests'",
        'the row\'s "grader": "harbor" needs "task": "tasks/17"',
    ),
    ({"answer": "42"}, "field 'answer'", 'needs "grader": "math"'),
    ({"grader": "math", "tests": [], "answer": " "}, "field 'answer'", "text that is not blank"),
    ({"grader": "math", "tests": [], "answer": 42}, "field 'answer'", 'write "answer": "42"'),
    (
        {"grader": "instructions", "tests": [], "instructions": [{"kind": "a:b", "kwargs": {}}]},
        "instructions[0].kwargs",
        "unknown; expected kind, arguments",
    ),
    ({"colour": 1}, "field 'colour': unknown", "id, split, statement, tests"),
]


@pytest.mark.parametrize(
    ("change", "field", "expected"), MALFORMED, ids=lambda value: str(value)[:50]
)
def test_a_malformed_row_is_one_line_with_file_line_field_and_right_form(
    tmp_path, change, field, expected
):
    path = tmp_path / "p.jsonl"
    path.write_bytes(orjson.dumps(GOOD) + b"\n" + orjson.dumps({**GOOD, "id": "a/2", **change}))
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
        problem_from_json({**GOOD, "atol": 10**400}, "f:1")


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
    problem = problem_from_json({**GOOD, "tests": [test]}, "here")
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
    *GOOD,
    "gold",
    "bad",
    "tags",
    "limits",
    "checker",
    "grader",
    "task",
    "difficulty",
    "language",
]


@settings(max_examples=400, deadline=None)
@given(field=st.sampled_from(KEYS), content=JSON, as_args=st.booleans())
def test_no_row_of_json_ends_in_anything_but_a_message(field, content, as_args):
    row = {**GOOD, field: content}
    if as_args:
        row = {**GOOD, "tests": [{"call": "f", "args": [content], "expected": content}]}
    try:
        problem_from_json(json.loads(json.dumps(row)), "f:1")
    except DataError as error:
        assert not INTERNALS.search(str(error))
        assert str(error).startswith("f:1: ")
