"""The embedded tasks' files are made once, and never over a user's own."""

import random
from collections import Counter

import pyarrow.parquet as pq
import pytest

from coding_model_project.data.training.rows import is_made, write_manifest
from coding_model_project.data.training.training_files import Plan, write_training_files
from coding_model_project.errors import ConfigError
from coding_model_project.grading.maths.final_answer import final_answer
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.synthetic import tiny_model, tinycode, tinymix
from coding_model_project.synthetic.prepare import prepare_files
from coding_model_project.synthetic.tinymix import Habits, arithmetic
from coding_model_project.types import Problem, Stdin, Test

TESTS = (Test(input=Stdin("1"), expected="1"),)
MINE = [Problem(id="mine/1", split="train", statement="?", tests=TESTS, gold=("print(1)",))]


def test_files_are_made_once_their_manifest_has_the_same_settings(tmp_path):
    manifest, settings = tmp_path / "manifest.json", {"generator": 2, "seed": 0}
    assert not is_made(manifest, settings)
    (tmp_path / "problems.jsonl").touch()
    write_manifest(manifest, settings, {})
    assert is_made(manifest, settings)
    assert not is_made(manifest, settings | {"seed": 1})


@pytest.mark.slow
def test_a_mixed_task_set_is_made_once(tmp_path, monkeypatch):
    some, said = list(tinycode.compositions())[::9], []
    monkeypatch.setattr(tinycode, "compositions", lambda: some)
    for _ in range(2):
        tinymix.prepare_files(tmp_path, seed=9, say=said.append)
    assert len(said) == 1
    rows = pq.read_table(tmp_path / "rl_train.parquet").column("data_source").to_pylist()
    assert rows.count("tinycode") == rows.count("arithmetic") > 0


def test_embedded_tasks_do_not_overwrite_a_users_files(tmp_path):
    write_training_files(MINE, tmp_path, Plan())
    kept = (tmp_path / "problems.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=r"coding\.dataset=null"):
        prepare_files(
            tmp_path, style=PromptStyle.bare, seed=0, sft_demonstrations=1, say=lambda line: None
        )
    assert (tmp_path / "problems.jsonl").read_bytes() == kept


# ── generated sums keep their promises ────────────────────────────────────────────────────────────


def test_the_answer_is_right_and_the_solution_ends_in_it():
    for problem in arithmetic():
        sum_ = problem.id.removeprefix("arithmetic/")
        assert eval(sum_) == int(problem.answer)
        assert (found := final_answer(problem.gold[0])) and found.text == problem.answer


def test_a_sum_is_in_one_split():
    ids = Counter(problem.id for problem in arithmetic())
    assert set(ids.values()) == {1}
    assert {problem.split for problem in arithmetic()} == {"train", "validation", "test"}


def test_the_demonstrator_answers_training_sums_alone_and_errs_as_often_as_told():
    by_statement = {
        p.statement.strip("?.= ").split("is ")[-1].split("Compute ")[-1]: p for p in arithmetic()
    }
    drawn = Habits(habit=0.5).draw(random.Random(0), 2000)
    right = 0
    for question, answer in drawn:
        sum_ = question["content"].strip("?.= ").split("is ")[-1].split("Compute ")[-1]
        problem = by_statement[sum_]
        assert problem.split == "train"
        found = final_answer(answer["content"])
        right += found is not None and found.text == problem.answer
    assert 0.45 < right / len(drawn) < 0.55


# ── the tiny starting model is made once ──────────────────────────────────────────────────────────


def test_a_model_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    made, said = [], []
    monkeypatch.setattr(
        tiny_model, "pretrain", lambda out, corpus, *_, **__: made.append((out, corpus))
    )

    def once() -> None:
        model = tiny_model.StartingModel(lambda: "corpus", "a minute")
        tiny_model.pretrain_once(tmp_path, model, seed=0, say=said.append)

    once()
    assert made == [(tmp_path / "base", "corpus")]
    assert str(tmp_path / "base") in said[0] and "a minute" in said[0]
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").touch()
    once()
    assert len(made) == len(said) == 1
