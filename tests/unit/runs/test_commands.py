"""The output of the commands on runs, from folders alone."""

import json
import re

import pytest

from coding_model_project.cli import main
from coding_model_project.runs.folder import RunFolder
from tests.unit.runs.test_folder import end_attempt, start


def logged(path, *steps):
    lines = [
        {"step": n, "data": {"judge/accepted": value, "timing_s/step": 2.0, "judge/seconds": 1.5}}
        for n, value in enumerate(steps, start=1)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "grpo"
    end_attempt(path, start(path), KeyboardInterrupt())
    logged(path, 0.25, 0.5)
    return RunFolder(path)


def test_runs_are_listed_with_state_and_result(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["runs", "--root", str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "grpo" in line]
    assert "interrupted" in line
    assert "2/5" in line
    assert "accepted 0.500" in line


def test_no_runs_says_where_it_looked(tmp_path, capsys):
    assert main(["runs", "--root", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_show_says_where_a_run_comes_from_and_what_it_cost(run, capsys):
    assert main(["runs", "show", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"step 2 of 5, last write \d+ s ago", shown)
    assert "attempt 1 interrupted" in shown
    assert "coding.seed" in shown
    assert '"judge_s": 3.0' in shown


def test_watching_a_run_that_has_ended_shows_its_last_state(run, capsys):
    assert main(["runs", "watch", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "step 2/5" in shown
    assert "▁█" in shown
