"""Every key explains itself, and the page made of that is up to date."""

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

import coding_model_project.cli as cli
from coding_model_project.configs import reference, schema
from coding_model_project.grading.judge import BACK_ENDS
from coding_model_project.types import GradedBy

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
PLAIN_NUMBERS = {"coding.seed", "coding.tinycode.seed"}


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == reference.render(), f"out of date; run: {reference.COMMAND}"


@pytest.mark.parametrize("key", reference.all_keys(), ids=lambda key: key.name)
def test_every_key_has_a_meaning_and_every_quantity_a_unit(key):
    assert key.meaning.endswith(".")
    assert "|" not in key.meaning + key.type + key.default  # would end a cell of the table
    if key.type.startswith(("int", "float")) and key.name not in PLAIN_NUMBERS:
        assert key.unit
    assert key.unit == "s" or not key.name.endswith("_s")


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


@pytest.mark.parametrize("name", BACK_ENDS)
def test_every_sandbox_of_this_package_can_be_chosen(name):
    choice = ROOT / "coding_model_project" / "configs" / "sandbox" / f"{name}.yaml"
    assert yaml.safe_load(choice.read_text())["name"] == name


@pytest.mark.parametrize("kind", [kind for kind in GradedBy if kind is not GradedBy.tests])
def test_the_page_of_problems_explains_a_kind_of_answer(kind):
    page = (ROOT / "docs" / "my-data.md").read_text()
    assert f'| `{kind}` | `"{kind.field}": ' in page


@pytest.mark.parametrize("preset", reference.presets(), ids=lambda preset: preset.name)
def test_presets_say_what_they_do_and_are_merged_into_the_root(preset):
    folder = ROOT / "coding_model_project" / "configs" / "experiment"
    text = (folder / f"{preset.name}.yaml").read_text()
    assert text.startswith("# @package _global_\n")
    assert yaml.safe_load(text) or preset.name == "none"
    assert preset.meaning.endswith(".")


def test_the_command_prints_or_writes_it(tmp_path, capsys):
    assert cli.main(["config", "reference"]) == 0
    assert capsys.readouterr().out == reference.render()
    path = tmp_path / "docs" / "page.md"
    assert cli.main(["config", "reference", "--out", str(path)]) == 0
    assert path.read_text() == reference.render()
