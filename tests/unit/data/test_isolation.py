"""Tests share a process in test-only sets whose publisher runs them so, never in rows that may train."""

import json

import pytest

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.data.governance import isolation_of
from coding_model_project.data.loaders.base import Part, Unusable
from coding_model_project.data.loaders.rows import Form
from coding_model_project.data.loaders.sets import SETS
from coding_model_project.data.problems import read_problems
from coding_model_project.errors import DataError
from coding_model_project.verl_ext.rewards.judging import JudgePool

CALL = {"call": "f", "args": [1], "expected": 2}


@pytest.mark.parametrize(
    ("source", "split", "isolation"),
    [
        ("humaneval_plus", "test", "shared"),
        ("mbpp_plus", "test", "shared"),
        ("livecodebench", "test", "shared"),
        ("mbpp", "test", "shared"),
        ("mbpp", "train", "per_test"),
        ("mbpp", "validation", "per_test"),
        ("mbpp", "prompt", "per_test"),
        ("mbpp_reg", "test", "per_test"),
        ("mbpp_sanitized", "train", "per_test"),
        ("mine", "test", "per_test"),
    ],
)
def test_only_test_only_data_shares_by_default(source, split, isolation):
    assert isolation_of(source, split) == isolation


@pytest.mark.parametrize(
    ("task", "isolation"), [(11, "shared"), (601, "per_test"), (511, "per_test")]
)
def test_tasks_of_mbpp_share_by_their_split(task, isolation):
    row = {
        "task_id": task, "text": "Double it.", "code": "def f(x): return 2 * x",
        "test_list": ["assert f(1) == 2"], "test_setup_code": "", "challenge_test_list": [],
    }  # fmt: skip
    assert SETS["mbpp"].to_problem(row, Part(split=None, files=()), 0).isolation == isolation


@pytest.mark.parametrize(
    ("source", "split"), [("mine", "train"), ("mbpp", "train"), ("apps", "train"), ("mine", "")]
)
def test_a_row_that_may_train_must_not_share(tmp_path, source, split):
    row = {
        "id": f"{source}/1", "split": split, "statement": "Double it.", "tests": [CALL],
        "isolation": "shared",
    }  # fmt: skip
    file = tmp_path / "problems.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"field 'isolation': expected .per_test..*may train"):
        read_problems(file)
    file.write_text(json.dumps(row | {"split": "test"}))
    assert read_problems(file)[0].isolation == "shared"
    form = Form(
        name=source, columns={"statement": "statement", "tests": "tests", "isolation": "isolation"}
    )
    mapped = {"statement": "Double it: f(x).", "isolation": "shared",
              "tests": {"inputs": ["1"], "outputs": ["2"]}}  # fmt: skip
    with pytest.raises(Unusable, match="may train"):
        form(mapped, Part(split=split or "train", files=()), 0)


def test_verls_reward_managers_share_no_process(tmp_path):
    row = {"id": "mine/1", "split": "test", "statement": "", "isolation": "shared", "tests": [CALL]}
    (path := tmp_path / "problems.jsonl").write_text(json.dumps(row) + "\n")
    assert read_problems(path)[0].isolation == "shared"
    pool = JudgePool(CodingConfig(problems=[str(path)]))
    assert pool.problem("mine/1").isolation == "per_test"


def test_sets_that_share_are_known():
    """Whoever adds one also names its publisher's harness in docs/grading.md."""
    named = {
        name for name, loader in SETS.items()
        if getattr(getattr(loader, "to_problem", None), "one_process", False)
    }  # fmt: skip
    assert {name.partition("_v")[0] for name in named} == {
        "humaneval_plus", "livecodebench", "mbpp", "mbpp_plus", "mbpp_reg", "mbpp_sanitized",
    }  # fmt: skip
