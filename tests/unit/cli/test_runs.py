"""`runs` and `report` on folders that hold runs rather than being one."""

import os
import shutil

import pytest

import coding_model_project.cli as cli
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.starting import end_attempt
from tests.unit.runs.test_folder import start


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
