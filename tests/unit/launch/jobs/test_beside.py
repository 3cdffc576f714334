"""Training and evaluation in one job: who gets which GPU, and how both end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.jobs.beside import split
from tests.text_cases import sources
from tests.waiting import wait_for

SOURCES = sources(__file__)

_RECIPE = SOURCES["recipe"]
_PACKAGE = SOURCES["package"]


@pytest.fixture
def stand_ins(tmp_path) -> Path:
    """A recipe and a command line in the place of ours, which note what they are given."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "__init__.py").touch()
    (tmp_path / "recipes" / "sft.py").write_text(_RECIPE)
    (tmp_path / "watching.py").write_text(_PACKAGE)
    return tmp_path


def start(root: Path, seconds: float, *options: str) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from coding_model_project.launch.jobs import beside; "
        "start = beside.start_child; "
        "beside.start_child = lambda words, **k: start("
        "['watching' if w == 'coding_model_project' else w for w in words], **k); "
        "sys.exit(beside.main(sys.argv[1:]))"
    )
    recipe = ["recipes.sft", f"coding.run_dir={root}/run", f"seconds={seconds}"]
    return subprocess.Popen(
        [sys.executable, "-c", code, *options, "--", *recipe],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{Path.cwd()}", "CUDA_VISIBLE_DEVICES": "4,5,6"},
    )


def watches(root: Path) -> list[list[str]]:
    return [json.loads(line) for line in (root / "run" / "watches").read_text().splitlines()]


@pytest.mark.slow
def test_the_last_gpus_evaluate_and_what_is_left_is_evaluated_before_the_end(stand_ins):
    assert start(stand_ins, 2, "--gpus", "2", "--arguments=--n 4").wait(120) == 0
    run = stand_ins / "run"
    assert (run / "devices").read_text() == "4"
    first, last = watches(stand_ins)
    assert first[:4] == ["watch", str(run), "--out", f"{run}/watch"]
    assert first[-3:] == ["--arguments=--n 4", "--devices", "5,6"]
    assert last == [*first, "--once"]
    assert (run / "interrupted").exists()


@pytest.mark.slow
def test_a_stop_reaches_the_training_and_both_end(stand_ins):
    process = start(stand_ins, 60, "--gpus", "1")
    wait_for(lambda: (stand_ins / "run" / "devices").exists())
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 130
    assert len(watches(stand_ins)) <= 1  # the next attempt evaluates what is left


@pytest.mark.slow
def test_a_stop_after_the_last_step_starts_no_more_evaluations(stand_ins, monkeypatch):
    monkeypatch.setenv("WATCH_ENDS_AFTER", "2")
    process = start(stand_ins, 2, "--gpus", "1")
    wait_for(lambda: (stand_ins / "run" / "interrupted").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 130
    assert len(watches(stand_ins)) == 1


def test_one_gpu_must_be_left_to_train_on():
    assert split(["0", "1"], 0) == (["0", "1"], [])
    assert split(["0", "1", "2"], 1) == (["0", "1"], ["2"])
    with pytest.raises(ConfigError, match=r"--eval-gpus=2: the job sees 2 GPUs"):
        split(["0", "1"], 2)
