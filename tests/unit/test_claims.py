"""Each test that `tests/claims.md` names exists."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLAIMS = (TESTS / "claims.md").read_text()
ROWS = [line for line in CLAIMS.splitlines() if re.match(r"\| (?!promise|---)", line)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" |")[0][2:])
def test_a_promise_names_tests_that_exist_or_none(row):
    cell = row.rstrip(" |").rpartition(" | ")[2]
    if cell.startswith("none"):
        return
    names = re.findall(r"`([\w./]+\.py)::(\w+)`", cell)
    modules = re.findall(r"`tests\.([\w.]+)`", cell)
    assert len(names) + len(modules) == cell.count("`") // 2 > 0
    for file, name in names:
        assert f"def {name}(" in (TESTS / file).read_text(), f"{file}: no {name}"
    for module in modules:
        assert (TESTS / f"{module.replace('.', '/')}.py").exists(), module


def test_its_pages_exist():
    pages = re.findall(r"^## (docs/\S+)", CLAIMS, re.M)
    assert pages and all((TESTS.parent / page).exists() for page in pages)
