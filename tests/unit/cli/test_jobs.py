"""`jobs`: what a wrong command line is told."""

import pytest

import coding_model_project.cli as cli
from tests.tables import tables
from tests.unit.launch.jobs.conftest import git

CASES = tables("cli")

SAGEMAKER = ["--backend", "sagemaker", "--region", "r"]


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
