"""Nothing that is test only reaches a training file, by whatever name it comes."""

import pytest

from coding_model_project.data.catalogue import BY_PATH, catalogue
from coding_model_project.data.governance import Role, is_test_only, refuse_test_only, role
from coding_model_project.data.training.rows import rl_rows, write_rows
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem


@pytest.mark.parametrize(
    ("source", "split", "expected"),
    [
        ("humaneval", "test", Role.test),
        ("openai/openai_humaneval", "train", Role.test),
        ("HumanEval-filtered", "", Role.test),
        ("codecontests", "train", Role.train),
        ("codecontests", "validation", Role.validation),
        ("codecontests", "test", Role.test),
        ("codecontests", "unknown", Role.validation),
        ("deepmind/code_contests", "test", Role.test),
        ("mbpp", "train", Role.train),
        ("mbpp", "test", Role.test),
        ("mbpp", "prompt", Role.validation),
        ("mbpp_reg", "train", Role.validation),
        ("livecodebench", "test", Role.test),
        ("gsm8k", "test", Role.test),
        ("deepcoder", "test", Role.test),
        ("mine", "test", Role.train),
    ],
)
def test_roles(source, split, expected):
    assert role(source, split) is expected


@pytest.mark.parametrize(
    "name", ["humaneval", "HumanEval_test", "mbpp_reg", "mbpp_test", "math500"]
)
def test_names_that_must_not_train(name):
    assert is_test_only(name)


@pytest.mark.parametrize("name", ["rl_train", "mbpp_train", "rl_validation", "mine_test", "train"])
def test_names_that_may(name):
    assert not is_test_only(name)


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


def test_no_test_split_of_a_known_set_may_train():
    known = [entry for entry in catalogue() if entry.status != BY_PATH]
    may_train = [one.name for one in known if one.splits.get("test", Role.test).may_train]
    assert may_train == []
