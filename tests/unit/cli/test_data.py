"""`data preflight`: gold solutions accepted, known-bad ones rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import coding_model_project.cli as cli
from coding_model_project.cli import main
from coding_model_project.data import catalogue
from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders import LOADERS
from coding_model_project.data.problems import write_problems
from coding_model_project.synthetic import tinyshell
from tests.fakes import stdin_problem
from tests.unit.data.rows import published as rows
from tests.unit.data.test_loaders import written


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


def test_a_table_with_a_row_per_test_is_noticed(tmp_path, sandbox, capsys):
    path = tmp_path / "p.csv"
    path.write_text("question,input,expected_output\nPrint it.,1,1\nPrint it.,2,2\n")
    options = ["--map", "statement=question", "--map", "tests=."]
    cli.main(["data", "preflight", str(path), *options])
    assert "p/2 and p/1" in capsys.readouterr().out


def test_tinyshell_in_the_form_of_tool_calls_has_a_folder_of_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tinyshell, "SIZES", {"train": 6, "validation": 2, "test": 2})
    monkeypatch.setattr(tinyshell, "N_SHOWN", 3)
    assert cli.main(["data", "prepare", "tinyshell", "--calls", "tools"]) == 0
    assert "tinyshell is in data/tinyshell_tools" in capsys.readouterr().out
    assert cli.main(["data", "prepare", "tinyshell", "--out", "data/tinyshell_tools"]) == 2
    assert "coding.bash.calls=tools" in capsys.readouterr().err
    assert cli.main(["data", "prepare", "tinycode", "--calls", "tools"]) == 2
    assert "only tinyshell takes this option" in capsys.readouterr().err


PAGE = Path(__file__).parents[3] / "docs" / "data-sets.md"


def listed(capsys, folder):
    assert main(["data", "list", "--data-dir", str(folder), "--json"]) == 0
    return {one["name"]: one for one in json.loads(capsys.readouterr().out)}


def test_the_page_is_up_to_date(tmp_path):
    assert PAGE.read_text() == catalogue.render(), f"out of date; run: {catalogue.COMMAND}"
    assert main(["data", "list", "--out", str(tmp_path / "docs" / "page.md")]) == 0
    assert (tmp_path / "docs" / "page.md").read_text() == PAGE.read_text()


def test_every_set_has_a_row_with_what_was_found(tmp_path, capsys):
    written(tmp_path, "mbpp.jsonl", rows.MBPP)
    written(tmp_path, "TACO/ALL/test-00000-of-00001.parquet", rows.TACO_STDIN)
    written(tmp_path, "test.jsonl", rows.LIVECODEBENCH_STDIN)
    assert main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    lines = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    assert set(LOADERS) <= set(lines)
    assert "found (1)" in lines["mbpp"]
    assert "not found" in lines["humaneval"]
    assert "BAAI/TACO" in table
    assert "TACO/train/data-*.arrow" in table
    found = listed(capsys, tmp_path)
    assert found["mbpp"]["found"] == [str(tmp_path / "mbpp.jsonl")]
    assert found["taco"]["found"] == [str(tmp_path / "TACO/ALL/test-00000-of-00001.parquet")]
    assert found["livecodebench_v1"]["found"] == [str(tmp_path / "test.jsonl")]
    assert found["livecodebench_v2"]["found"] == [], "a release needs all its files"
    assert found["tinycode"]["found"] is None


def test_roles_are_those_of_the_governance(tmp_path, capsys):
    found = listed(capsys, tmp_path)
    assert found["humaneval"]["splits"] == {"test": "test"}
    assert found["mbpp_reg"]["splits"] == {"test": "validation"}
    assert found["taco"]["splits"] == {"train": "train", "test": "test"}
    assert found["tinycode_asserts"]["splits"]["test"] == "test"
    assert found["gsm8k"]["splits"]["train"] == role("gsm8k", "train") == Role.train
