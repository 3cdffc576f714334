"""HardTests: tests and statements of two repositories, joined by the problems' ids."""

import base64
import json
import pickle
import zlib

import pytest

from coding_model_project.cli import main
from coding_model_project.data.loaders import load
from coding_model_project.errors import ConfigError, DownloadError
from tests.unit.data.rows import published as rows
from tests.unit.data.test_loaders import written

JUDGE = """\
def output_judging_function(input_str, candidate_output, reference_output):
    return sorted(candidate_output.split()) == sorted(reference_output.split())
"""
TESTS = "hardtests_tests/data/train-00000-of-00121.parquet"
PROBLEMS = "hardtests_problems/data/train-00000-of-00012.parquet"


def suite(pid, judge, *cases):
    tests = json.dumps([{"input": given, "output": output} for given, output in cases])
    packed = base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()
    return {
        "pid": pid,
        "test_cases_kit": {"pid": pid, "output_judging_function": judge},
        "test_cases": packed,
    }


def problem(pid, **changes):
    return rows.HARDTESTS_PROBLEM | {"pid": pid} | changes


@pytest.fixture
def folder(tmp_path):
    written(
        tmp_path,
        TESTS,
        suite("codeforces_1", JUDGE, ("3 4\n", "3 4\n")),
        suite("atcoder_2", None, ("5", "5")),
        suite("atcoder_3", "", ("5", "5")),
        suite("gone_4", None, ("5", "5")),
        suite("functions_5", None, ("5", "5")),
    )
    written(
        tmp_path,
        PROBLEMS,
        problem("functions_5", starter_code="class Solution: ..."),
        problem("atcoder_3"),
        problem("atcoder_2", question_content="Print the number."),
        problem("codeforces_1"),
    )
    return tmp_path


def test_a_suite_has_the_statement_and_the_solutions_of_its_problem(folder):
    loaded = load("hardtests", data_dir=folder)
    judged, plain = loaded.problems
    assert (judged.id, judged.split, judged.date) == (
        "hardtests/codeforces_1", "train", "2018-09-16",
    )  # fmt: skip
    assert judged.statement == "Echo\n\nPrint both numbers in any order."
    assert judged.gold == ("print(input())",)
    assert (judged.limits.cpu_s, judged.limits.memory_mb) == (4.0, 512)
    assert [test.public for test in judged.tests] == [True, False]
    assert judged.comparison == "checker"
    assert (plain.id, plain.checker) == ("hardtests/atcoder_2", None)
    assert [aside.reason.partition(":")[0] for aside in loaded.set_aside] == [
        "needs a checker",
        "hardtests_problems has no row of this problem",
        "its programs are functions, and its tests standard input",
    ]


@pytest.mark.sandbox
def test_its_judging_function_is_the_checker(folder, capsys):
    lines = [
        {"problem_id": "hardtests/codeforces_1", "completion": f"```python\n{program}\n```"}
        for program in ("a, b = input().split(); print(b, a)", "print(input(), 0)")
    ]
    answers = written(folder, "answers.jsonl", *lines)
    arguments = ["--dataset", "hardtests", "--data-dir", str(folder), "--completions", str(answers)]
    assert main(["grade", *arguments, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["judged"], summary["accepted"]) == (2, 1)


def test_without_the_statements_one_line_says_how_to_get_them(folder, tmp_path):
    (folder / PROBLEMS).unlink()
    with pytest.raises((ConfigError, DownloadError)) as refused:
        load("hardtests", data_dir=folder)
    said = str(refused.value)
    assert "hardtests_problems, which hardtests needs: not found" in said
    assert "hf download sigcp/hardtests_problems --repo-type dataset --local-dir" in said
    assert "hardtests_problems=PATH" not in said
    assert "\n" not in said
