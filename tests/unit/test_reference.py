"""Pages made from code, or naming it: the configuration's keys, the site, and `tests/claims.md`."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

import coding_model_project.cli as cli
from coding_model_project.configs import reference, schema
from coding_model_project.grading.judge import BACK_ENDS
from coding_model_project.types import GradedBy
from tests import docs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
CONFIGS = ROOT / "coding_model_project" / "configs"
PLAIN_NUMBERS = {"coding.seed", "coding.tinycode.seed"}


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == reference.render(), f"out of date; run: {reference.COMMAND}"


def test_every_key_has_a_meaning_and_every_quantity_a_unit():
    for key in reference.all_keys():
        assert key.meaning.endswith("."), key.name
        assert "|" not in key.meaning + key.type + key.default, "it would end a cell of the table"
        if key.type.startswith(("int", "float")) and key.name not in PLAIN_NUMBERS:
            assert key.unit, key.name
        assert key.unit == "s" or not key.name.endswith("_s"), key.name


def test_keys_are_those_of_the_configuration():
    trees = [OmegaConf.structured(root) for root in schema.ROOTS]
    known = {key.name for key in reference.all_keys()}
    assert known == {f"coding.{name}" for tree in trees for name in leaves(tree)}


def leaves(node, prefix=""):
    for name in node:
        if OmegaConf.is_dict(node._get_node(name)) and len(node[name]):
            yield from leaves(node[name], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_sandbox_of_this_package_can_be_chosen_and_presets_are_merged_into_the_root():
    for name in BACK_ENDS:
        assert yaml.safe_load((CONFIGS / "sandbox" / f"{name}.yaml").read_text())["name"] == name
    for preset in reference.presets():
        text = (CONFIGS / "experiment" / f"{preset.name}.yaml").read_text()
        assert text.startswith("# @package _global_\n")
        assert yaml.safe_load(text) or preset.name == "none"
        assert preset.meaning.endswith(".")


def test_the_page_of_problems_explains_each_kind_of_answer():
    page = (ROOT / "docs" / "my-data.md").read_text()
    kinds = [kind for kind in GradedBy if kind is not GradedBy.tests]
    assert [kind for kind in kinds if f'| `{kind}` | `"{kind.field}": ' not in page] == []


def test_the_command_prints_or_writes_it(tmp_path, capsys):
    assert cli.main(["config", "reference"]) == 0
    assert capsys.readouterr().out == reference.render()
    path = tmp_path / "docs" / "page.md"
    assert cli.main(["config", "reference", "--out", str(path)]) == 0
    assert path.read_text() == reference.render()


# ── the documentation site, as `make docs` builds it ──────────────────────────────────────────────


built_once = pytest.mark.xdist_group("site")
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(https?://[^\"' >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "docs/site.py", "--out", str(out)]
    built = subprocess.run(command, cwd=docs.ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.mark.slow
@built_once
def test_every_page_is_in_the_site_and_loads_nothing_from_elsewhere(site):
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {Path("docs") / path.stem for path in docs.PAGES if path.stem != "index"} <= pages
    for path in site.rglob("*.html"):
        assert not LOADED.findall(path.read_text("utf-8")), path


def test_the_navigation_names_every_page_of_the_docs():
    navigation = (docs.ROOT / "docs" / "zensical.toml").read_text("utf-8")
    for path in docs.PAGES:
        assert f'"docs/{path.name}"' in navigation or path.name == "index.md", path.name


def test_llms_txt_is_current_and_lists_every_page():
    text = (docs.ROOT / "llms.txt").read_text("utf-8")
    assert text == site_script().llms(), "write it again: python docs/site.py --llms"
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", text, re.M)
    assert all((docs.ROOT / link).is_file() for link in links)
    assert {page.name for page in docs.PAGES} - {"index.md"} <= {Path(link).name for link in links}


def site_script():
    """`docs/site.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location("docs_site", docs.ROOT / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@built_once
def test_the_command_lines_reference_has_each_command_with_its_options(site):
    page = (site / "docs" / "command-line.html").read_text("utf-8")
    for command in ("grade", "eval run", "sandbox battery", "data rows", "harbor posttrain"):
        assert f"coding-model {command}<" in page
    assert "--min-tier" in page and "python -m recipes.grpo" in page


# ── each test that claims.md names exists ─────────────────────────────────────────────────────────


TESTS = Path(__file__).parents[1]
CLAIMED = (TESTS / "claims.md").read_text()


def test_a_promise_names_tests_that_exist_or_none():
    pages = re.findall(r"^## (docs/\S+)", CLAIMED, re.M)
    assert pages and all((ROOT / page).exists() for page in pages)
    for row in re.findall(r"^\| (?!promise|---).*", CLAIMED, re.M):
        cell = row.rstrip(" |").rpartition(" | ")[2]
        names = re.findall(r"`([\w./]+\.py)::(\w+)`", cell)
        modules = re.findall(r"`tests\.([\w.]+)`", cell)
        assert cell.startswith("none") or len(names) + len(modules) == cell.count("`") // 2 > 0, row
        for file, name in names:
            assert f"def {name}(" in (TESTS / file).read_text(), f"{file}: no {name}"
        for module in modules:
            assert (TESTS / f"{module.replace('.', '/')}.py").exists(), module
