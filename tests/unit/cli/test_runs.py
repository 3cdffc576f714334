"""`runs` and `report` on folders that hold runs rather than being one."""

from __future__ import annotations

import os
import shutil

import pytest

import coding_model_project.cli as cli
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.starting import end_attempt
from tests.tables import tables
from tests.unit.launch.jobs.conftest import git
from tests.unit.runs.test_folder import start

CASES = tables("cli")


@pytest.fixture
def outputs(tmp_path):
    """A folder with three runs, of which b is the newest."""
    for age, name in enumerate(("b", "c", "a")):
        path = tmp_path / "outputs" / name
        end_attempt(path, start(path))
        when = 1_700_000_000 - age
        os.utime(RunFolder(path).run_json, (when, when))
    return tmp_path / "outputs"


def test_of_a_folder_of_runs_the_newest_is_shown(outputs, capsys):
    lone = outputs.parent / "lone"
    shutil.copytree(outputs / "a", lone / "a")
    assert cli.main(["runs", "show", str(lone)]) == 0
    assert capsys.readouterr().err == ""  # that run, without a word
    for command in (["show"], ["watch"]):
        assert cli.main(["runs", *command, str(outputs)]) == 0
        (note,) = capsys.readouterr().err.splitlines()
        assert f"{outputs} holds 3 runs: {outputs / 'b'}, {outputs / 'c'}" in note
        assert note.endswith(f"using the newest: {outputs / 'b'}")


def test_a_run_to_repeat_must_be_named(outputs, capsys):
    assert cli.main(["runs", "rerun", str(outputs), "--out", str(outputs / "d")]) == 2
    assert capsys.readouterr().err.strip().endswith("; pass one of them")


def test_a_report_of_a_folder_of_runs_shows_all_of_them(outputs, capsys, monkeypatch):
    page = outputs / "page.html"
    assert cli.main(["report", str(outputs), "--out", str(page)]) == 0
    assert page.exists()
    assert f"{outputs} holds {outputs / 'b'}, " in capsys.readouterr().err
    monkeypatch.setattr(cli.runs, "MOST_RUNS", 2)
    assert cli.main(["report", str(outputs), "--out", str(page)]) == 2
    assert "holds 3 runs, and a page shows at most 2; pass some" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["report"], ["runs", "show"], ["runs", "watch"]], ids=" ".join)
def test_a_folder_without_a_run_is_exit_2_and_one_line(command, tmp_path, capsys):
    for place, says in ((tmp_path, "no run is below it"), (tmp_path / "no", "no such folder")):
        assert cli.main([*command, str(place)]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert str(place) in error and says in error


# ── `jobs`: what a wrong command line is told ─────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    repo = tmp_path_factory.mktemp("jobs") / "repo"
    repo.mkdir()
    (repo / "a.py").write_text("1\n")
    git(repo, "init", "--quiet")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "first")
    return repo


@pytest.fixture
def here(repo, monkeypatch):
    monkeypatch.chdir(repo)
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    return repo


@pytest.mark.parametrize(("words", "said"), CASES["wrong option"])
def test_a_wrong_option_is_one_line_and_nothing_is_written(here, capsys, words, said):
    assert cli.main(["jobs", "submit", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1
    assert not (here / "outputs").exists()


def test_slurm_that_is_not_installed(here, capsys, monkeypatch):
    import shutil
    from pathlib import Path

    git_folder = Path(shutil.which("git") or "").parent
    only = here.parent / "bin"
    only.mkdir()
    (only / "git").symlink_to(git_folder / "git")
    monkeypatch.setenv("PATH", str(only))
    assert cli.main(["jobs", "submit", "--backend", "slurm", "sft", "hardware=cpu"]) == 2
    assert "--backend=slurm: sbatch is not installed here" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["logs"], ["stop"], ["fetch", "--out", "x"]])
def test_a_job_that_is_not_known(here, capsys, command):
    assert cli.main(["jobs", *command, "nope"]) == 2
    assert "nope: no such job" in capsys.readouterr().err


def test_a_run_that_is_not_running_cannot_be_stopped(here, capsys):
    assert cli.main(["runs", "stop", "nowhere"]) == 1
    assert "not running" in capsys.readouterr().out


def test_check_prints_what_would_run(here, capsys):
    words = ["--check", "baseline", "hardware=cpu", "coding.evaluation.model=m"]
    assert cli.main(["jobs", "submit", *words]) == 0
    assert "-m recipes.baseline hardware=cpu coding.evaluation.model=m" in capsys.readouterr().out
    assert not (here / "outputs").exists()
