"""Every published schema loads; unusable rows are counted; damage names file and line."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coding_model_project.data import loaders
from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders import LOADERS, load
from coding_model_project.data.loaders.base import Place, Trail
from coding_model_project.data.problems import problem_line
from coding_model_project.errors import ConfigError, DataError, DownloadError
from coding_model_project.grading.kinds import KINDS
from coding_model_project.grading.prompts import PromptStyle, solve_messages
from coding_model_project.sandbox.embedded.languages import cpp
from coding_model_project.types import Asserts, Checker, GradedBy, Problem
from tests.unit.data.rows import published as rows


def written(folder, name, *content):
    """A file of rows in the form that its name says."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in content)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(list(content)), path)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif name.endswith(".json"):
        path.write_text(json.dumps(content))
    else:
        path.write_text(lines)
    return path


def one(folder, name, row, file="rows.jsonl"):
    """Return the only problem of a row."""
    loaded = load(name, path=written(folder, file, row))
    assert loaded.set_aside == ()
    (problem,) = loaded.problems
    return problem


@pytest.mark.parametrize(("name", "file", "row", "change", "expected"), rows.PUBLISHED["problems"])
def test_a_row_of_a_published_schema_is_this_problem(tmp_path, name, file, row, change, expected):
    problem = one(tmp_path, name, rows.PUBLISHED["rows"][row] | change, file)
    assert json.loads(problem_line(problem)) == expected


ELSEWHERE = {
    "bigcodebench", "bigcodebench_hard", "cruxeval_i", "humaneval", "humaneval_plus",
    "humaneval_x_cpp", "ifbench", "ifeval", "kodcode", "mbpp_plus", "tinycode", "verl",
}  # fmt: skip
"""Sets whose rows are in other tests."""


def test_every_set_has_a_row_that_a_test_converts():
    """A set from the repository of another one has its columns."""
    by_id = {problem["id"].partition("/")[0] for *_, problem in rows.PUBLISHED["problems"]}
    hubs = {LOADERS[name].published.hub for name in (by_id & LOADERS.keys()) | ELSEWHERE}
    without = [name for name, one in LOADERS.items() if one.published.hub not in hubs]
    assert without == [], "add a row and its problem to tests/data/published.json"


@pytest.mark.parametrize(("name", "row", "change", "reason"), rows.PUBLISHED["set_aside"])
def test_a_row_that_cannot_be_used_is_counted_with_its_reason(tmp_path, name, row, change, reason):
    usable = rows.PUBLISHED["rows"][row]
    path = written(tmp_path, "r.jsonl", usable, usable | change)
    loaded = load(name, path=path)
    assert len(loaded.problems) == 1
    (aside,) = loaded.set_aside
    assert aside.where == f"{path}:2"
    assert reason in aside.reason


def test_a_checker_that_judges_more_than_equality_judges_where_it_compiles(tmp_path, monkeypatch):
    checker = '#include "testlib.h"\nint main() { int n = inf.readInt(); quitf(_ok, ""); }'
    path = written(tmp_path, "r.jsonl", {**rows.CODECONTESTS_PLUS, "checker": checker})
    monkeypatch.delenv(cpp.TESTLIB, raising=False)
    assert "checker" in load("codecontests_plus_3x", path=path).set_aside[0].reason
    if isinstance(cpp.find("cpp"), str):
        pytest.skip("no g++ here")
    header = tmp_path / "testlib.h"
    header.touch()
    monkeypatch.setenv(cpp.TESTLIB, str(header))
    (problem,) = load("codecontests_plus_3x", path=path).problems
    assert problem.comparison == "checker"
    assert problem.checker == Checker(source=checker, language="cpp")


def test_humaneval(tmp_path):
    problem = one(tmp_path, "humaneval", rows.HUMANEVAL)
    (test,) = problem.tests
    assert isinstance(test.input, Asserts)
    assert (problem.id, problem.split, problem.entry_point) == ("humaneval/999", "test", "quarter")
    assert test.input.entry_point == "quarter"
    names = {}
    exec(problem.gold[0], names)
    tests = {"quarter": names["quarter"]}
    exec(test.input.source, tests)
    assert tests["halve"] is not names["halve"], "a program must not bring the tests' helpers"
    with pytest.raises(AssertionError):
        exec(test.input.source, {"quarter": lambda x: 1})


# ── damage ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["gsm8k_test", "mine"])
def test_a_line_cut_in_half_names_file_and_line(tmp_path, name):
    path = written(tmp_path, "r.jsonl", rows.GSM8K)
    path.write_text(path.read_text() + path.read_text()[:20])
    with pytest.raises((DataError, ConfigError)) as caught:
        load("gsm8k_test", path=path)
    assert f"{path}:2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_damage_names_the_file(tmp_path):
    packed = written(tmp_path, "r.jsonl.gz", *[rows.GSM8K] * 50)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"r\.jsonl\.gz:\d+"):
        load("gsm8k_test", path=packed)
    table = written(tmp_path, "r.parquet", rows.GSM8K)
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"r\.parquet"):
        load("gsm8k_test", path=table)
    listing = written(tmp_path, "r.json", rows.GSM8K)
    listing.write_text(listing.read_text()[:-5])
    with pytest.raises(DataError, match=r"r\.json:1"):
        load("gsm8k_test", path=listing)
    with pytest.raises(ConfigError, match="nowhere"):
        load("gsm8k_test", path=tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("name", sorted(set(LOADERS) - {"tinycode", "tinycode_asserts"}))
def test_rows_of_another_set_are_refused_by_the_missing_field(tmp_path, name):
    with pytest.raises(DataError, match="is missing; rows of"):
        load(name, path=written(tmp_path, "r.jsonl", {"colour": 1}))


def test_fewer_tests_are_taken_evenly(tmp_path):
    cases = [{"input": str(n), "output": str(n)} for n in range(10)]
    path = written(tmp_path, "r.jsonl", {**rows.CODECONTESTS_PLUS, "test_cases": cases})
    (problem,) = load("codecontests_plus", path=path, max_tests=4).problems
    assert [test.expected for test in problem.tests] == ["0", "2", "5", "7"]


def test_streams_give_rows_as_they_are_read(tmp_path):
    path = written(tmp_path, "r.jsonl", rows.GSM8K, {"question": 1, "answer": "#### 1"})
    place, trail = Place(path=path), Trail()
    stream = loaders.stream("gsm8k_test", place, trail)
    assert isinstance(next(stream), Problem)
    assert trail.set_aside == []
    assert list(stream) == []
    assert len(trail.set_aside) == 1


def test_columns_that_share_the_name_of_a_harness_field_do_not_count(tmp_path):
    row = {"q": "Add.", "t": ["assert add(1, 2) == 3"], "publisher": "A house", "prelude": "In C"}
    path = written(tmp_path, "r.jsonl", row)
    (problem,) = load("mine", path=path, columns={"statement": "q", "tests": "t"}).problems
    assert (problem.publisher, problem.prelude) == (None, "")


@pytest.mark.parametrize("kind", [kind for kind in GradedBy if kind is not GradedBy.tests])
def test_a_column_does_not_choose_the_grader_by_its_name_alone(tmp_path, kind):
    row = {"q": "Add.", "t": ["assert add(1, 2) == 3"], kind.field: json.loads(KINDS[kind].example)}
    path = written(tmp_path, "r.jsonl", row)
    (problem,) = load("mine", path=path, columns={"statement": "q", "tests": "t"}).problems
    assert (problem.graded_by, len(problem.tests)) == (GradedBy.tests, 1)


# ── GSM8K with five examples, as lm-eval draws them ────────────────────────────────────────────────


DRAWN = [[6374, 3610, 957, 61, 742], [7462, 6610, 4769, 286, 5501]]
"""Rows of the train split in lm-eval's prompts of the first two test questions."""


def asked(n):
    return {"question": f"Question {n}?", "answer": f"{n} is <<{n}={n}>>{n}.\n#### {n:,}"}


@pytest.fixture
def questions(tmp_path):
    written(tmp_path, "gsm8k/train.jsonl", *map(asked, range(7_473)))
    return tmp_path


@pytest.mark.slow
def test_each_question_has_the_examples_that_lm_eval_draws(questions):
    path = written(questions, "mine.jsonl", {"question": "1 + 1?", "answer": "#### 2"}, asked(3))
    loaded = load("gsm8k_5shot", path=path, data_dir=questions)
    assert [(p.id, p.answer) for p in loaded.problems] == [
        ("gsm8k_5shot/test/0", "2"),
        ("gsm8k_5shot/test/1", "3"),
    ]
    for problem, question, drawn in zip(
        loaded.problems, ("1 + 1?", "Question 3?"), DRAWN, strict=True
    ):
        shown = "".join(
            f"Question: Question {n}?\nAnswer: {n} is <<{n}={n}>>{n}.\n#### {n:,}\n\n"
            for n in drawn
        )
        (message,) = solve_messages(problem, style=PromptStyle.fenced)
        assert message["content"] == f"{shown}Question: {question}\nAnswer:"
    assert "train.jsonl" in loaded.origin
    assert role("gsm8k_5shot", "test") is Role.test


@pytest.mark.slow
def test_a_row_that_is_set_aside_keeps_the_others_examples(questions):
    path = written(questions, "mine.jsonl", {"question": "?", "answer": "none"}, asked(3))
    (problem,) = load("gsm8k_5shot", path=path, data_dir=questions).problems
    assert problem.statement.startswith(f"Question: Question {DRAWN[1][0]}?\n")


def test_without_the_train_split_one_line_says_how_to_get_it(tmp_path):
    path = written(tmp_path, "mine.jsonl", asked(3))
    with pytest.raises((ConfigError, DownloadError)) as refused:
        load("gsm8k_5shot", path=path, data_dir=tmp_path / "none")
    assert "hf download openai/gsm8k" in str(refused.value)
    assert "gsm8k/train.jsonl" in str(refused.value)
    assert "\n" not in str(refused.value)
