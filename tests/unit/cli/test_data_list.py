"""`data list`, and the page made of it."""

import json
from pathlib import Path

from coding_model_project.cli import main
from coding_model_project.data import catalogue
from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders import LOADERS
from tests.unit.data.rows import published as rows
from tests.unit.data.test_loaders import written

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
