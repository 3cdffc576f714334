"""The pages of docs/ are true: their fast blocks run, and what they name exists."""

import functools
import importlib.util
import itertools
import json
import re
import tomllib
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import typer
from omegaconf import OmegaConf
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from coding_model_project.cli import app
from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.runs.checkpoints import write_manifest
from coding_model_project.runs.mirror import Mirror
from tests import docs
from tests.moto_server import s3_server
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import training, training_metrics, write_run
from tests.unit.cli.options import options

pytestmark = pytest.mark.slow

WITHOUT_TRAINING = [
    page
    for page in (*docs.PAGES, docs.ROOT / "README.md")
    if any(block.executed and not block.needs for block in docs.blocks(page))
    and page.name not in docs.TRAINED
]
HARDWARE = "hardware=cpu"


@pytest.mark.sandbox
@pytest.mark.parametrize("page", WITHOUT_TRAINING, ids=lambda page: page.name)
def test_fast_blocks_run(page, tmp_path):
    folder = tmp_path / "reader"
    if page.name == "read-a-run.md":
        grpo_run(folder / "outputs" / "grpo")
    if page.name == "compare.md":
        evaluated_run(folder / "outputs")
    with mirrored_run(tmp_path) if page.name == "object-store.md" else nullcontext():
        assert docs.execute(page, folder, timeout_s=180)


@contextmanager
def mirrored_run(folder):
    """An S3 server with a run that was mirrored to it."""
    with s3_server():
        grpo_run(folder / "grpo")
        Mirror(folder / "grpo", "s3://bucket/runs/grpo", 30.0, ()).sync()
        yield


def grpo_run(folder):
    """Write a finished GRPO run into a folder."""
    rollouts = list(training(n_steps=6))
    write_run(folder, rollouts=rollouts, metrics=training_metrics(rollouts))
    origin = json.loads((folder / "run.json").read_text())
    origin |= {"python": "3.11.7", "grader_version": "1", "packages": {}}
    (folder / "run.json").write_text(json.dumps(origin))
    (folder / "config.yaml").write_text("trainer: {total_training_steps: 6}\n")


def evaluated_run(outputs):
    """Evaluations over seeds, and a training with checkpoints."""
    chance = np.random.default_rng(0).random(120)
    for name, gain in (("sft", 0.0), ("grpo", 0.1)):
        for seed in (1, 2, 3):
            solved = np.random.default_rng([seed, len(name)]).random(120) < chance + gain
            samples = {f"mine/{i}": [bool(passed)] for i, passed in enumerate(solved)}
            write_evaluation(
                outputs / "eval" / f"{name}_seed{seed}", {"mine": samples}, model=f"{name}{seed}",
                seed=seed, sampling={"temperature": 0.0},
            )  # fmt: skip
    write_evaluation(
        outputs / "eval" / "hot", {"mine": {"mine/0": [True]}}, sampling={"temperature": 1.0}
    )
    for step in (6, 12):
        model = outputs / "grpo" / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps({"steps": step}))
        (model / "model.safetensors").write_bytes(b"weights")
        write_manifest(model.parents[1])


@pytest.mark.parametrize("page", docs.READ, ids=lambda page: str(page.relative_to(docs.ROOT)))
def test_commands_exist(page):
    for command in docs.commands(page):
        assert importlib.util.find_spec(command.module), f"{command}: no such module"
        if command.module == "coding_model_project":
            check_options(command)
        elif command.module in ("recipes.baseline", "recipes.sft", "recipes.dpo", "recipes.grpo"):
            check_overrides(command)


def check_options(command):
    """Subcommands and options as the command line knows them."""
    here = typer.main.get_command(app)
    for argument in command.arguments:
        if argument.startswith("--"):
            names = [[*one.opts, *one.secondary_opts] for one in here.params]
            known = {"--help", *itertools.chain(*names)}
            if here.context_settings.get("ignore_unknown_options"):  # it hands them on
                known |= {name for one in options() for name in one.names}
            assert argument.split("=")[0] in known, f"{command}: no option {argument}"
        elif argument in getattr(here, "commands", {}):
            here = here.commands[argument]
        elif not getattr(here, "invoke_without_command", False):
            assert not hasattr(here, "commands"), f"{command}: no command {argument}"


def check_overrides(command):
    """The recipe takes these arguments; where a value is a placeholder, it has the key."""
    recipe = command.module.removeprefix("recipes.")
    given = [word for word in command.arguments if "=" in word and not word.startswith(("-", "["))]
    whole = []
    for word in given:
        key = word.partition("=")[0]
        if not is_placeholder(word):
            whole.append(word)
        elif key.startswith("+"):  # any value will do to see whether it can be added
            whole.append(f"{key}=x")
        else:
            assert has_key(recipe, key), f"{command}: no key {key}"
    try:
        composed(recipe, tuple(dict.fromkeys(map(first_of_sweep, whole))))
    except ConfigError as error:
        pytest.fail(f"{command}: {error}")


def is_placeholder(override):
    """`key=NAME`, `key=value`, `key=a|b`, `key=$HOME/x`: not to be taken literally."""
    value = override.partition("=")[2]
    return bool(re.search(r"^[A-Z]+\b|\$|\.\.\.|^value$|^$", value))


def first_of_sweep(override):
    key, _, value = override.partition("=")
    return f"{key}={value.split(',')[0]}" if re.fullmatch(r"[\w,]+", value) else override


@functools.cache
def composed(recipe, overrides):
    hardware = [] if any(word.startswith("hardware=") for word in overrides) else [HARDWARE]
    return compose_recipe(recipe, [*overrides, *hardware])


def has_key(recipe, key):
    if key in ("hardware", "experiment"):
        return True
    *parents, last = key.split(".")
    node = composed(recipe, ())
    for parent in parents:
        if not OmegaConf.is_dict(node) or parent not in node.keys():  # noqa: SIM118 - also what is missing
            return False
        node = node._get_node(parent)
    return OmegaConf.is_dict(node) and last in list(node.keys())


OF_OTHERS = ("verl-command.md",)
"""Pages of keys that do not exist; `test_verl_command` has theirs."""


@pytest.mark.parametrize(
    "page",
    [page for page in docs.READ if page.name not in OF_OTHERS],
    ids=lambda page: str(page.relative_to(docs.ROOT)),
)
def test_keys_exist(page):
    for where, key in docs.keys(page):
        recipes = ("grpo", "sft", "dpo", "repair", "baseline", "pipeline")
        known = key.startswith("hydra.") or any(has_key(recipe, key) for recipe in recipes)
        assert known, f"{where}: no key {key}"  # Hydra's launchers are packages of their own


@pytest.mark.parametrize(
    "page",
    [*docs.READ, docs.ROOT / "CHANGELOG.md"],
    ids=lambda page: str(page.relative_to(docs.ROOT)),
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_contributing_names_files_and_models_that_are_there():
    page = (docs.ROOT / "CONTRIBUTING.md").read_text()
    recipes = re.findall(
        r"^\| [a-z ]+ \| (.*/.*) \| (.*) \|$", page.partition("How to add")[2], re.M
    )
    assert len(recipes) > 4
    for files, models in recipes:
        paths = [docs.ROOT / "coding_model_project" / one for one in re.findall(r"`(.*?)`", files)]
        paths = [path for path in paths if path.suffix != ".yaml" or "NAME" not in path.name]
        assert [path for path in paths if not path.exists()] == []
        files = [one for path in paths for one in ([path] if path.is_file() else path.glob("*.py"))]
        text = "".join(file.read_text() for file in files)
        assert [one for one in re.findall(r"`(.*?)`", models) if one not in text] == []


def test_the_index_lists_every_page():
    text = (docs.ROOT / "docs" / "index.md").read_text()
    for page in docs.PAGES:
        assert page.name == "index.md" or f"({page.name})" in text


def test_the_changelog_has_dated_releases_and_every_grader_version():
    text = (docs.ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (?:Unreleased|(\S+) \((\d{4}-\d\d-\d\d), \w{8}\))$", text, re.M)
    assert len(releases) == text.count("\n## ")
    dated = [(day, Version(version)) for version, day in releases if version]
    assert dated == sorted(dated, reverse=True)
    titles = re.findall(
        r"^\*\*Scores change: `GRADER_VERSION` (\d+)(?: (?:to|and) (\d+))?", text, re.M
    )
    versions = [n for first, last in titles for n in range(int(last or first), int(first) - 1, -1)]
    assert versions == list(range(int(GRADER_VERSION), 0, -1))


def test_the_badges_say_what_the_package_says():
    project = tomllib.loads((docs.ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r"<text[^>]*>([^<]+)", (docs.ROOT / "docs/pictures/badges.svg").read_text())
    pythons = SpecifierSet(project["requires-python"])
    assert badges[2] == " | ".join(f"3.{n}" for n in range(20) if f"3.{n}" in pythons)
    assert f"verl=={badges[4]}" in project["optional-dependencies"]["train"]
    assert badges[6] == project["license"]


def test_what_is_wrong_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`coding.reward.knd` and `python -m recipes.sft trainer.nonsense=1 | cat`\n"
        "```console\npython -m coding_model_project nonsense --path x  # no\n```\n"
        "```sh exit=3\necho some; exit 3\n```\n"
        "```text output\nsome\nmore\n```\n"
    )
    assert ("page.md:1", "coding.reward.knd") in set(docs.keys(page))
    assert not has_key("grpo", "coding.reward.knd")
    sft, nonsense = sorted(docs.commands(page), key=lambda command: -len(command.module))[::-1]
    assert sft.arguments == ("trainer.nonsense=1",)
    with pytest.raises(pytest.fail.Exception, match=r"trainer\.nonsense"):
        check_overrides(sft)
    assert nonsense.arguments == ("nonsense", "--path", "x")
    with pytest.raises(AssertionError, match="no command nonsense"):
        check_options(nonsense)
    with pytest.raises(AssertionError, match=r"page\.md:8: 'more' is not in the output"):
        docs.execute(page, tmp_path / "reader", timeout_s=60)


def test_a_fast_block_has_no_torch(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python exit=1\nimport torch\n```\n```text output\nmust not import torch\n```\n"
    )
    assert docs.execute(page, tmp_path / "reader", timeout_s=60) == 1


def test_a_block_that_hangs_is_named(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("\n```sh\nexec sleep 60\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:2: not done after 0\.2 s"):
        docs.execute(page, tmp_path / "reader", timeout_s=0.2)
