"""The embedded tasks' files are made once, and never over a user's own."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from coding_model_project.data.training.rows import is_made, write_manifest
from coding_model_project.data.training.training_files import Plan, write_training_files
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.synthetic import tinycode, tinymix
from coding_model_project.synthetic.prepare import prepare_files
from coding_model_project.types import Problem, Stdin, Test

TESTS = (Test(input=Stdin("1"), expected="1"),)
MINE = [Problem(id="mine/1", split="train", statement="?", tests=TESTS, gold=("print(1)",))]


def test_files_are_made_once_their_manifest_has_the_same_settings(tmp_path):
    manifest, settings = tmp_path / "manifest.json", {"generator": 2, "seed": 0}
    assert not is_made(manifest, settings)
    write_manifest(manifest, settings, {"rl_train": 4})
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
