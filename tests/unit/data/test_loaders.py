"""Every published schema loads; unusable rows are counted; damage names file and line."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coding_model_project.data import loaders
from coding_model_project.data.loaders import LOADERS, load
from coding_model_project.data.loaders.base import Place, Trail
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.sandbox.embedded.languages import cpp
from coding_model_project.types import Asserts, Call, Checker, Problem, Protocol, Stdin, Test
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


@pytest.mark.parametrize("file", ["rows.jsonl", "rows.jsonl.gz", "rows.json", "rows.parquet"])
def test_codecontests(tmp_path, file):
    problem = one(tmp_path, "codecontests_valid", rows.CODECONTESTS, file)
    assert (problem.id, problem.split) == ("codecontests/validation/0", "validation")
    assert [test.input.text for test in problem.public_tests] == ["1\n"]
    assert [test.expected for test in problem.hidden_tests] == ["6\n", "0\n", "-10\n"]
    assert len(problem.gold) == 2
    assert problem.bad == ("print(int(input()) ** 2)",)
    assert (problem.limits.cpu_s, problem.limits.memory_mb) == (3.0, 1024)
    assert (problem.difficulty, problem.tags) == (800, ("math",))
    assert (problem.comparison, problem.publisher) == ("codecontests", "codecontests")


def test_codecontests_without_public_tests(tmp_path):
    row = {**rows.CODECONTESTS, "public_tests": {"input": [], "output": []}}
    problem = one(tmp_path, "codecontests_train", row)
    assert (len(problem.public_tests), len(problem.hidden_tests)) == (0, 3)
    assert problem.publisher is None  # training rows have one reading


def test_codecontests_without_limits(tmp_path):
    row = {**rows.CODECONTESTS, "time_limit": None, "memory_limit_bytes": 0, "cf_rating": 0}
    problem = one(tmp_path, "codecontests_train", row)
    assert problem.limits.cpu_s == 5.0
    assert problem.difficulty is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"description": "See <image>."}, "image"),
        ({"description": " "}, "empty"),
        ({"description": None}, "description"),
        ({"input_file": "in.txt"}, "files"),
        ({"description": "If there are multiple answers, print any of them."}, "checker"),
        ({"private_tests": {"input": ["1"], "output": []}}, "outputs"),
        (
            {
                "private_tests": {"input": [], "output": []},
                "generated_tests": {"input": [], "output": []},
            },
            "hidden",
        ),
        ({"solutions": {"language": [3], "solution": []}}, "form"),
    ],
)
def test_a_row_that_cannot_be_used_is_counted_with_its_reason(tmp_path, change, reason):
    path = written(tmp_path, "r.jsonl", rows.CODECONTESTS, {**rows.CODECONTESTS, **change})
    loaded = load("codecontests_train", path=path)
    assert len(loaded.problems) == 1
    (aside,) = loaded.set_aside
    assert reason in aside.reason
    assert aside.where == f"{path}:2"


def test_codecontests_plus(tmp_path):
    problem = one(tmp_path, "codecontests_plus", rows.CODECONTESTS_PLUS)
    assert problem.id == "codecontests_plus/9999_A"
    assert problem.statement.startswith("Twice\n\nRead")
    assert problem.gold == ("print(2 * int(input()))",)
    assert problem.bad == ("print(0)",)
    assert problem.limits.cpu_s == 4.0


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


def test_mbpp(tmp_path):
    problem = one(tmp_path, "mbpp", rows.MBPP)
    assert (problem.id, problem.split, problem.entry_point) == ("mbpp/700", "train", "taxed")
    sources = [test.input.source for test in problem.hidden_tests]
    assert sources[0] == "RATE = 2\nassert set([taxed(1)]) == {3}\n"
    assert len(sources) == 3, "challenge tests are hidden tests too"
    assert "assert taxed(0) == 2" in problem.statement
    assert "taxed(-2)" not in problem.statement
    assert "\r" not in problem.gold[0]


def test_mbpp_sanitized_and_its_regression_set(tmp_path):
    train = {**rows.MBPP_SANITIZED, "task_id": 601}
    path = written(tmp_path, "sanitized-mbpp.json", rows.MBPP_SANITIZED, train)
    assert [p.id for p in load("mbpp_sanitized", path=path).problems] == [
        "mbpp_sanitized/11",
        "mbpp_sanitized/601",
    ]
    assert [p.split for p in load("mbpp_sanitized_train", path=path).problems] == ["train"]
    (problem,) = load("mbpp_reg", path=path).problems
    assert problem.id == "mbpp_reg/11"
    assert problem.tests[0].input.source.startswith("import math\n")


@pytest.mark.parametrize(
    ("task", "split"),
    [(10, "prompt"), (11, "test"), (510, "test"), (511, "validation"), (601, "train")],
)
def test_mbpp_splits_by_number(tmp_path, task, split):
    assert one(tmp_path, "mbpp", {**rows.MBPP, "task_id": task}).split == split


def test_livecodebench(tmp_path):
    problem = one(tmp_path, "livecodebench", rows.LIVECODEBENCH_CALL)
    assert problem.entry_point == "total"
    assert problem.tests[0] == Test(
        input=Call(function="total", args=([1, 2], "a")), expected=3, public=True
    )
    assert len(problem.hidden_tests) == 3  # its harness judges by the public ones, too
    assert problem.publisher == "livecodebench"
    assert "from typing import *" in problem.prelude
    assert "class Solution" in problem.statement
    problem = one(tmp_path, "livecodebench", rows.LIVECODEBENCH_STDIN)
    assert problem.hidden_tests == (Test(input=Stdin("1 2\n"), expected="3\n"),) * 2
    assert problem.split == "test"


def test_hostile_private_tests_are_set_aside(tmp_path):
    row = {**rows.LIVECODEBENCH_STDIN, "private_test_cases": rows.packed([])[:-8]}
    (aside,) = load("livecodebench", path=written(tmp_path, "r.jsonl", row)).set_aside
    assert "private_test_cases" in aside.reason


def test_deepcoder(tmp_path):
    problem = one(tmp_path, "deepcoder_train", rows.DEEPCODER_LIST)
    assert problem.gold == ("print(sum(map(int, input().split())))\n",)
    assert problem.tests == (Test(input=Stdin("1 2\n"), expected="3\n"),)
    problem = one(tmp_path, "deepcoder_train", rows.DEEPCODER_TACO)
    assert problem.tests[1] == Test(input=Call(function="add", args=(3, 4)), expected=7)
    problem = one(tmp_path, "deepcoder_train", rows.DEEPCODER_LCB)
    assert problem.tests[0].input == Call(function="total", args=([1, 2], "a"))


def test_codeforces(tmp_path):
    problem = one(tmp_path, "codeforces", rows.CODEFORCES, "codeforces_test.jsonl")
    assert (problem.id, problem.split) == ("codeforces/9999/A", "test")
    assert [test.input.text for test in problem.hidden_tests] == ["5\n"]
    assert "official tests cut" in problem.tags
    assert "One integer." in problem.statement
    for change, reason in (
        ({"input_mode": "file"}, "files"),
        ({"note": "Print any of them."}, "checker"),
    ):
        path = written(tmp_path, "r.jsonl", {**rows.CODEFORCES, **change})
        assert reason in load("codeforces", path=path).set_aside[0].reason
    row = {**rows.CODEFORCES, "note": "Print any of them.", "generated_checker": "print(1)"}
    checked = one(tmp_path, "codeforces", row, "codeforces_test.jsonl")
    assert checked.comparison == "checker"
    assert checked.checker == Checker(source="print(1)", protocol=Protocol.score)


def test_verl_rows(tmp_path):
    problem = one(tmp_path, "eurus", rows.EURUS_CODE, "train.parquet")
    assert problem.statement == "Double a number."
    assert problem.tests[1] == Test(input=Stdin("2\n3"), expected="4\n6")
    problem = one(tmp_path, "eurus", rows.EURUS_MATH)
    assert (problem.graded_by, problem.answer) == ("math", "\\frac{1}{2}")


def test_maths(tmp_path):
    problem = one(tmp_path, "gsm8k_train", rows.GSM8K)
    assert (problem.answer, problem.graded_by, problem.publisher) == ("1,200", "math", None)
    assert one(tmp_path, "gsm8k_test", rows.GSM8K).publisher == "lm_eval"
    problem = one(tmp_path, "math_test", rows.MATH)
    assert (problem.answer, problem.difficulty) == ("\\frac{1}{2}", 3)
    assert one(tmp_path, "math500", rows.MATH_500).id == "math500/test/0"


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
