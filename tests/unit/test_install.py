"""Installation advice fits the way in which this package was installed."""

from importlib.util import find_spec

import pytest

from coding_model_project import install
from coding_model_project.errors import ConfigError
from coding_model_project.launch import compose
from coding_model_project.launch.verl_keys import tree


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """Installed by pip: there is no Makefile above the package."""
    monkeypatch.setattr(install, "_ABOVE_PACKAGE", tmp_path)


def test_in_a_checkout_make_sets_up():
    assert install.checkout() is not None
    assert install.how_to_install() == install.how_to_install("serve") == "make setup"
    assert install.how_to_install(gpu=True) == "pip install -r requirements/gpu.txt"


def test_from_a_wheel_it_is_an_extra(wheel):
    assert install.checkout() is None
    assert install.how_to_install() == "pip install 'coding-model-project[train]'"
    assert install.how_to_install(gpu=True) == "pip install 'coding-model-project[train]'"
    assert install.how_to_install("serve") == "pip install 'coding-model-project[serve]'"


@pytest.mark.usefixtures("wheel")
def test_a_recipe_without_verl_says_what_to_install_and_an_evaluation_needs_none(monkeypatch):
    monkeypatch.setattr(tree, "find_spec", lambda name: None if name == "verl" else find_spec(name))
    with pytest.raises(ConfigError, match=r"pip install 'coding-model-project\[train\]'"):
        compose.compose_recipe("grpo", ["hardware=cpu"])
    config = compose.compose_recipe("baseline", ["hardware=cpu", "coding.evaluation.n=2"])
    assert config.coding.evaluation.n == 2
