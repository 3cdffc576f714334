"""Texts name only what exists: options, commands and keys, in every string of the package."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from coding_model_project.configs.reference import all_keys
from tests import fresh
from tests.tables import tables
from tests.unit.cli.options import commands, options

CASES = tables("cli")

ROOT = Path(__file__).parents[3]
FILES = sorted(
    path
    for part in ("coding_model_project", "recipes", "src")
    for path in (ROOT / part).rglob("*.py")
)
FOREIGN = {
    "any program": {"--help", "--version", "--debug"},
    "a recipe": {"--cfg", "--config", "--multirun"},
    "pip": {"--no-deps", "--target", "--no-cache-dir", "--extra-index-url"},
    "apt-get": {"--no-install-recommends"},
    "compileall": {"--invalidation-mode"},
    "a post-training task's evaluate.py": {"--model-path"},
    "vllm serve": {"--max-model-len", "--enable-auto-tool-choice", "--tool-call-parser"},
    "docker and podman": {"--shm-size"},
    "git": {"--format"},
    "setpriv": {"--reuid"},
    "hf download": {"--repo-type", "--local-dir"},
    "ray start": {"--head", "--port", "--address", "--num-gpus", "--dashboard-host"},
    "sbatch": {"--gres", "--nodes", "--time"},
    "Hydra": {"--config-path", "--config-name", "--config-dir"},
    "harbor (Harbor's own)": {"--agent", "--ak"},
}
"""Options of other programs that texts name. Keep it short: each entry is an option nothing checks."""
OWN_RECIPES = {"coding.on_ungradable"}
"""Keys that only `CodeRewardManager` in one's own `main_ppo` reads."""

HARBORS_OWN = {"datasets", "run", "view"}
"""Commands of Harbor's own `harbor`."""

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_KEY = re.compile(r"(?<![\w./])coding(?:\.[a-z_][a-z0-9_]*)+")
_SPAN = re.compile(r"`([^`\n]+)`")
_MODULE = re.compile(r"python3? -m ((?:coding_model_project|recipes)[\w.]*)([^`\n;]*)")


@cache
def strings() -> list[tuple[str, str]]:
    """Every text of the package, docstrings too, with where it stands."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.value)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """Those without single words, which are arguments of commands rather than advice."""
    return [(where, text) for where, text in strings() if re.search(r"\s", text.strip())]


@cache
def known_options() -> frozenset[str]:
    ours = {name for option in options() for name in option.names}
    return frozenset(ours.union(_script_options(), *FOREIGN.values()))


def _script_options() -> set[str]:
    """Those of the scripts in src, as they list them."""
    pages = [
        subprocess.run([fresh.python(), path, "--help"], capture_output=True, text=True, check=True)
        for path in sorted((ROOT / "src").glob("*.py"))
        if "__main__" in path.read_text()
    ]
    return {name for page in pages for name in _OPTION.findall(page.stdout)}


@pytest.mark.slow
def test_options_exist(texts):
    unknown = [
        f"{where}: {name}"
        for where, text in texts
        for name in _OPTION.findall(text)
        if name not in known_options()
    ]
    assert unknown == []


@pytest.mark.parametrize(("advice", "wrong"), CASES["wrong_advice_is_found"])
def test_wrong_advice_is_found(advice, wrong):
    found = list(wrong_commands(advice))
    assert found == [] if wrong is None else wrong in found[0]


def test_commands_exist(texts):
    wrong = [f"{where}: {why}" for where, text in texts for why in wrong_commands(text)]
    assert wrong == []


def wrong_commands(text: str) -> Iterator[str]:
    """Yield why commands in a text are invalid: `data rows …`, python -m recipes.sft …"""
    for span in _SPAN.findall(text):
        words = span.split()
        if len(words) > 1 and words[0] in _tree()[""].commands:
            yield from _wrong(words)
    for module, rest in _MODULE.findall(text):
        if module in ("recipes.", "recipes.NAME"):  # a name is put in, or a reader's to choose
            continue
        if importlib.util.find_spec(module) is None:
            yield f"no module {module}"
        elif module == "coding_model_project":
            yield from _wrong(rest.split())


def _wrong(words: list[str]) -> Iterator[str]:
    if words[:1] == ["harbor"] and words[1] in HARBORS_OWN:
        return
    here = _tree()[""]
    for word in words:
        name = word.strip(".,:()[]'\"").partition("=")[0]
        if name.startswith("--"):
            taken = {one for parameter in here.params for one in parameter.opts} | {"--help"}
            extra = here.context_settings.get("allow_extra_args", False)
            if name not in taken and not extra:
                yield f"no option {name} in: {' '.join(words)}"
        elif name in getattr(here, "commands", {}):
            here = here.commands[name]
        elif hasattr(here, "commands") and re.fullmatch(r"[a-z][a-z-]*", name):
            yield f"no command {name} in: {' '.join(words)}"
            return


@cache
def _tree():
    return dict(commands())


def test_keys_exist():
    keys = {key.name for key in all_keys()} | OWN_RECIPES
    free = tuple(f"{key.name}." for key in all_keys() if key.type.startswith("mapping"))
    groups = {name.rsplit(".", n)[0] for name in keys for n in range(1, name.count(".") + 1)}
    unknown = [
        f"{where}: {key}"
        for where, text in strings()
        for key in _KEY.findall(text)
        if key not in keys | groups and not key.startswith(free)
    ]
    assert unknown == []


def test_make_targets_and_pages_exist(texts):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for where, text in texts:
        assert targets.issuperset(re.findall(r"`make ([a-z-]+)", text)), where
        for page in re.findall(r"\bdocs/[\w-]+\.md", text):
            assert (ROOT / page).exists(), f"{where}: {page}"
