"""The documentation site, as `make docs` builds it."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import docs

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(https?://[^\"' >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "docs/site.py", "--out", str(out)]
    built = subprocess.run(command, cwd=docs.ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return out


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]  # which is built once


def test_every_page_is_in_the_site_and_loads_nothing_from_elsewhere(site):
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    for path in sorted((docs.ROOT / "docs").glob("*.md")):
        if path.name != "index.md":
            assert Path("docs") / path.stem in pages
    for path in site.rglob("*.html"):
        assert not LOADED.findall(path.read_text("utf-8")), path


def test_the_navigation_names_every_page_of_the_docs():
    navigation = (docs.ROOT / "docs" / "zensical.toml").read_text("utf-8")
    for path in sorted((docs.ROOT / "docs").glob("*.md")):
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


def test_the_command_lines_reference_has_each_command_with_its_options(site):
    page = (site / "docs" / "command-line.html").read_text("utf-8")
    for command in ("grade", "eval run", "sandbox battery", "data rows", "harbor posttrain"):
        assert f"coding-model {command}<" in page
    assert "--min-tier" in page and "python -m recipes.grpo" in page
