"""Build the documentation site: `make docs`, or `python docs/site.py --out FOLDER`.

The site holds the pages of docs/, experiment_design/ and recipes/ as they lie in the repository, so
that every relative link works in both places, and a reference of the command line made from the
commands' own help. Zensical builds it (https://zensical.org, the successor of Material for MkDocs by
the same authors), strictly: a link to a page or heading that does not exist fails the build. The
site needs no network.
"""

from __future__ import annotations

import argparse
import html
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "experiment_design", "recipes")
"""Where pages are; of folders only Markdown, pictures and study definitions are taken."""
SHOWN = frozenset({".md", ".png", ".svg", ".css", ".yaml"})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "outputs" / "site", help="Write the site to this folder."
    )
    parser.add_argument(
        "--llms", action="store_true", help="Write llms.txt, the list of pages for models, instead."
    )
    options = parser.parse_args()
    if options.llms:
        (ROOT / "llms.txt").write_text(llms(), "utf-8")
        return 0
    out: Path = options.out
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        stage(Path(folder))
        built = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, check=False
        )
        if built.returncode:
            return 1
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(Path(folder) / "site", out)
    print(f"the site is in {out}: open {out / 'index.html'}")
    return 0


def stage(folder: Path) -> None:
    """Put the pages and the configuration of the site into an empty folder."""
    shutil.copyfile(ROOT / "docs" / "zensical.toml", folder / "zensical.toml")
    pages = folder / "pages"
    for name in PAGES:
        found = [ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*"))
        for path in found:
            if path.is_file() and path.suffix in SHOWN:
                copy = pages / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".md":
                    copy.write_text(fences_with_one_word(path.read_text("utf-8")), "utf-8")
                else:
                    shutil.copyfile(path, copy)
    (pages / "docs" / "command-line.md").write_text(command_line(), "utf-8")


def llms() -> str:
    """Return llms.txt (https://llmstxt.org): the site's pages by section, with what each is for."""
    project = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text("utf-8"))["project"]
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    wants = {
        f"docs/{page}": want
        for want, page in re.findall(r"^\| (.+) \| \[.+\]\((.+)\) \|$", index, re.M)
    }
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    for title, pages in _sections("Start here", project["nav"]):
        lines += ["", f"## {title}", ""]
        for name, page in pages:
            lines.append(f"- [{name}]({page})" + (f": {wants[page]}" if page in wants else ""))
    return "\n".join(lines) + "\n"


def _sections(title: str, entries: list[dict]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each section with its pages in the repository, and then the sections below it."""
    named = [pair for entry in entries for pair in entry.items()]
    pages = [(name, of) for name, of in named if isinstance(of, str) and (ROOT / of).exists()]
    if pages:
        yield title, pages
    for name, of in named:
        if not isinstance(of, str):
            yield from _sections(name, of)


def fences_with_one_word(text: str) -> str:
    """Return Markdown whose code fences name a language only; ours also say how tests run them."""
    return re.sub(r"^(\s*`{3,}\w+) .*$", r"\1", text, flags=re.MULTILINE)


def command_line() -> str:
    """Return the reference of the command line, in Markdown."""
    command = [sys.executable, "-m", "typer", "coding_model_project.cli", "utils", "docs"]
    made = subprocess.run(
        [*command, "--name", "coding-model"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    text = made.stdout.replace("# `coding-model`", "# Command line", 1)
    return examples_as_code(html.unescape(text))


def examples_as_code(text: str) -> str:
    """Return help texts with a fence around each run of indented lines, which are commands."""
    lines, fenced = [], False
    for indented, run in groupby(text.split("\n"), key=lambda line: line.startswith("  ")):
        run = list(run)
        fenced ^= sum(line.startswith("```") for line in run) % 2 == 1
        lines += ["", "```text", *run, "```", ""] if indented and not fenced else run
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
