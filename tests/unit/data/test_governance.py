"""No test-only data reaches a training file by any name, and no data that may train shares a process."""

import json

import pytest

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.data import governance
from coding_model_project.data.catalogue import BY_PATH, catalogue
from coding_model_project.data.governance import (
    Role,
    is_test_only,
    isolation_of,
    refuse_test_only,
    role,
    set_table,
)
from coding_model_project.data.loaders.base import Part, Unusable
from coding_model_project.data.loaders.rows import Form
from coding_model_project.data.problems import read_problems
from coding_model_project.data.training.rows import rl_rows, write_rows
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem
from coding_model_project.verl_ext.rewards.judging import JudgePool
from tests.tables import tables

CASES = tables("governance")


@pytest.mark.parametrize(("source", "split", "expected"), CASES["roles"])
def test_roles(source, split, expected):
    assert role(source, split) == expected


def test_names_that_must_not_train_and_names_that_may():
    test_only = ("humaneval", "HumanEval_test", "mbpp_reg", "mbpp_test", "math500")
    others = ("rl_train", "mbpp_train", "rl_validation", "mine_test", "train")
    assert {name: is_test_only(name) for name in (*test_only, *others)} == {
        **dict.fromkeys(test_only, True),
        **dict.fromkeys(others, False),
    }


def rows_of(name, split):
    problem = Problem(id=name, split=split, statement="?", tests=())
    return list(rl_rows([problem], PromptStyle.bare))


@pytest.mark.parametrize(
    ("name", "split"),
    [("humaneval/1", "train"), ("mbpp/11", "test"), ("codecontests/x/1", "valid")],
)
def test_the_writer_and_the_reader_of_training_files_refuse(tmp_path, name, split):
    rows = rows_of(name, split)
    with pytest.raises(ConfigError, match="must not train"):
        write_rows(tmp_path / "a.parquet", rows, trains=True)
    assert not (tmp_path / "a.parquet").exists()
    write_rows(tmp_path / "b.parquet", rows, trains=False)
    with pytest.raises(ConfigError, match="test only"):
        refuse_test_only(tmp_path / "b.parquet")


def test_what_may_train_is_written(tmp_path):
    write_rows(tmp_path / "a.parquet", rows_of("mbpp/700", "train"), trains=True)
    refuse_test_only(tmp_path / "a.parquet")


def test_every_public_set_has_a_role_where_it_is_defined(monkeypatch):
    assert {keys["role"] for keys in set_table().values()} == set(Role)
    monkeypatch.setattr(governance, "set_table", lambda: {"new": {"splits": {"train": 1}}})
    with pytest.raises(ValueError, match=r"new: role: None: expected train, validation, test"):
        governance.roles.__wrapped__()


def test_no_test_split_of_a_known_set_may_train():
    known = [entry for entry in catalogue() if entry.status != BY_PATH]
    may_train = [one.name for one in known if one.splits.get("test", Role.test).may_train]
    assert may_train == []


CALL = {"call": "f", "args": [1], "expected": 2}


@pytest.mark.parametrize(("source", "split", "isolation"), tables("isolation")["isolations"])
def test_only_test_only_data_shares_by_default(source, split, isolation):
    assert isolation_of(source, split) == isolation


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
