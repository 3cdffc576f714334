"""GSM8K with five examples has lm-eval's prompts: the drawn rows, separators and rules of answers."""

import pytest

from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders import load
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.grading.prompts import PromptStyle, solve_messages
from tests.unit.data.test_loaders import written

DRAWN = [[6374, 3610, 957, 61, 742], [7462, 6610, 4769, 286, 5501]]
"""Rows of the train split in lm-eval's prompts of the first two test questions."""


def row(n):
    return {"question": f"Question {n}?", "answer": f"{n} is <<{n}={n}>>{n}.\n#### {n:,}"}


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, "gsm8k/train.jsonl", *map(row, range(7_473)))
    return tmp_path


@pytest.mark.slow
def test_each_question_has_the_examples_that_lm_eval_draws(folder):
    path = written(folder, "mine.jsonl", {"question": "1 + 1?", "answer": "#### 2"}, row(3))
    loaded = load("gsm8k_5shot", path=path, data_dir=folder)
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
def test_a_row_that_is_set_aside_keeps_the_others_examples(folder):
    path = written(folder, "mine.jsonl", {"question": "?", "answer": "none"}, row(3))
    (problem,) = load("gsm8k_5shot", path=path, data_dir=folder).problems
    assert problem.statement.startswith(f"Question: Question {DRAWN[1][0]}?\n")


def test_without_the_train_split_one_line_says_how_to_get_it(tmp_path):
    path = written(tmp_path, "mine.jsonl", row(3))
    with pytest.raises((ConfigError, DownloadError)) as refused:
        load("gsm8k_5shot", path=path, data_dir=tmp_path / "none")
    assert "hf download openai/gsm8k" in str(refused.value)
    assert "gsm8k/train.jsonl" in str(refused.value)
    assert "\n" not in str(refused.value)
