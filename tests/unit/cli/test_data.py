"""`data preflight`: gold solutions accepted, known-bad ones rejected."""

import json

import pytest

import coding_model_project.cli as cli
from coding_model_project.data.problems import write_problems
from coding_model_project.synthetic.tinyshell import shell_files
from tests.fakes import stdin_problem


def preflight(folder, capsys):
    code = cli.main(["data", "preflight", "mine", "--path", str(folder / "p.jsonl"), "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_preflight_counts(files, sandbox, capsys):
    code, line = preflight(files, capsys)
    assert code == 0
    assert line.pop("seconds") >= 0
    counts = dict.fromkeys(("problems", "gold_accepted", "bad_total", "bad_rejected"), 2)
    assert line == {"dataset": "mine", **counts}


@pytest.mark.parametrize(("gold", "bad", "counts"), [("x", "2", (0, 1)), ("1", "1", (1, 0))])
def test_preflight_fails_on_bad_gold_or_accepted_bad(files, sandbox, capsys, gold, bad, counts):
    problem = stdin_problem(("", "1"), gold=(gold,), bad=(bad,))
    write_problems(files / "p.jsonl", [problem])
    code, line = preflight(files, capsys)
    assert code == 1
    assert (line["gold_accepted"], line["bad_rejected"]) == counts


def test_tinyshell_in_the_form_of_tool_calls_has_a_folder_of_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shell_files, "SIZES", {"train": 6, "validation": 2, "test": 2})
    monkeypatch.setattr(shell_files, "N_SHOWN", 3)
    assert cli.main(["data", "prepare", "tinyshell", "--calls", "tools"]) == 0
    assert "tinyshell is in data/tinyshell_tools" in capsys.readouterr().out
    assert cli.main(["data", "prepare", "tinyshell", "--out", "data/tinyshell_tools"]) == 2
    assert "coding.bash.calls=tools" in capsys.readouterr().err
    assert cli.main(["data", "prepare", "tinycode", "--calls", "tools"]) == 2
    assert "only tinyshell takes this option" in capsys.readouterr().err
