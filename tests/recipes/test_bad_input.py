"""Bad input answers in one line that names the key and the way out, with exit code 2, at once."""

import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def run(*arguments: str, recipe: str = "grpo", cwd=None) -> tuple[int, str, float]:
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", f"recipes.{recipe}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )
    return result.returncode, result.stderr, time.monotonic() - started


@pytest.fixture
def own_files(tmp_path):
    """A user's own files: enough to pass the checks up to the one under test."""
    row = {"data_source": "mine", "prompt": [{"role": "user", "content": "x"}]}
    row["extra_info"] = {"split": "train"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "train.parquet")
    pq.write_table(
        pa.Table.from_pylist([row | {"data_source": "humaneval"}]), tmp_path / "mixed.parquet"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return [
        "hardware=cpu",
        "coding.dataset=null",
        "coding.min_memory_gb=0",
        f"data.train_files={tmp_path}/train.parquet",
        f"data.val_files={tmp_path}/train.parquet",
        f"actor_rollout_ref.model.path={tmp_path}/model",
    ]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("coding.reward.knd=dense", "coding.reward.kind"),
        ("coding.reward.kind=foo", "dense, sparse"),
        ("trainer.total_training_step=3", "trainer.total_training_steps"),
        ("hardware=tpu", "cpu gpu_1x gpu_8x"),
        ("custom_reward_function.path=x.py", "custom_reward_function"),
        ("reward_model.enable=true", "reward_model"),
        ("coding.min_memory_gb=100000", "coding.min_memory_gb"),
        ("actor_rollout_ref.model.path=/nowhere/model", "actor_rollout_ref.model.path"),
        ("data.train_files=/nowhere/train.parquet", "data.train_files"),
        ("data.train_files=/nowhere/humaneval.parquet", "test only"),
    ],
)
def test_one_line_naming_the_key(own_files, override, says, tmp_path):
    replaced = [a for a in own_files if a.split("=")[0] != override.split("=")[0]]
    code, stderr, seconds = run(*replaced, override, cwd=tmp_path)
    assert code == 2, stderr
    assert len(stderr.strip().splitlines()) == 1, stderr
    assert stderr.startswith("error: ")
    assert says in stderr
    assert seconds < 10


def test_test_only_rows_are_refused_whatever_the_file_is_called(own_files, tmp_path):
    replaced = [a for a in own_files if not a.startswith("data.train_files")]
    code, stderr, _ = run(*replaced, f"data.train_files={tmp_path}/mixed.parquet", cwd=tmp_path)
    assert code == 2
    assert "humaneval" in stderr
    assert "test only" in stderr


@pytest.mark.parametrize("recipe", ["sft", "grpo", "demo"])
def test_help_answers_within_two_seconds_and_teaches(recipe):
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", f"recipes.{recipe}", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    assert f"python -m recipes.{recipe}" in result.stdout
    assert time.monotonic() - started < 2
