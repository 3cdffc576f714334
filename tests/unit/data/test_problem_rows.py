"""Errors about malformed files of problems name the field and its right form."""

import json
import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.data.problems import problem_from_json, read_problems
from coding_model_project.errors import DataError
from tests.tables import tables

CASES = tables("problem_rows")

CALL = {"call": "f", "args": [1], "expected": 2}
GOOD = {"id": "a/1", "split": "train", "statement": "?", "tests": [CALL]}
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
    *["gold", "bad", "tags", "limits", "checker", "grader", "task", "difficulty", "language"],
]


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
