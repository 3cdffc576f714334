"""The lines that a training prints of its own: where it resumes, and where it has finished."""

import json
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coding_model_project.launch import run
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.recipe import Recipe
from coding_model_project.runs.checkpoints import write_manifest


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A user's own files for SFT, in a process that nothing else is set up in."""
    for name in ("prepare_environment", "log_into"):
        monkeypatch.setattr(run, name, lambda *_, **__: None)
    monkeypatch.setattr(run.processes, "start_sentinel", lambda: None)
    monkeypatch.setattr(run.checks, "check_memory", lambda *_: None)
    row = {"data_source": "mine", "messages": [{"role": "user", "content": "x"}]}
    row["extra_info"] = {"split": "train"}
    pq.write_table(pa.Table.from_pylist([row] * 40), tmp_path / "train.parquet")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    overrides = [
        "hardware=cpu",
        "coding.dataset=null",
        f"data.train_files={tmp_path}/train.parquet",
        f"data.val_files={tmp_path}/train.parquet",
        f"model.path={tmp_path}/model",
        f"coding.run_dir='{tmp_path}/my run'",
    ]
    return lambda: compose_recipe("sft", overrides)


def recipe(tmp_path, *, fails=False):
    def train(config):
        folder = tmp_path / "my run"
        with (folder / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({"step": 7, "data": {"train/loss": 1.0}}) + "\n")
        saved = folder / "checkpoints" / "global_step_7"
        saved.mkdir(parents=True, exist_ok=True)
        (saved / "weights").write_text("0")
        write_manifest(saved)
        if fails:
            raise KeyboardInterrupt

    return Recipe(name="sft", model_key="model.path", train=train)


def test_a_training_says_where_it_resumes_and_what_comes_next(config, tmp_path, capsys):
    folder, command = tmp_path / "my run", ["python", "-m", "recipes.sft"]
    with pytest.raises(KeyboardInterrupt):
        run.carry_out(recipe(tmp_path, fails=True), config(), command)
    first = capsys.readouterr().out
    assert "resuming" not in first
    assert "finished:" not in first
    run.carry_out(recipe(tmp_path), config(), command)
    lines = capsys.readouterr().out.splitlines()
    assert f"resuming {folder} from step 7" in lines
    assert lines[-1].startswith(f"finished: {folder} after 7 steps")
    assert lines[-1].endswith(f"report {shlex.quote(str(folder))}")
    run.carry_out(recipe(tmp_path), config(), command)
    assert "has finished; for another run" in capsys.readouterr().out


def test_inside_another_program_nothing_comes_next(config, tmp_path, capsys):
    run.carry_out(recipe(tmp_path), config())
    assert "finished:" not in capsys.readouterr().out
