"""`sandbox=` chooses where programs run, in every recipe."""

import pytest

from coding_model_project.configs.schema import coding_of
from coding_model_project.errors import ConfigError
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import FusionSandbox

URLS = "coding.sandbox.urls=[http://one:8080,http://two:8080]"


def sandbox(recipe, *overrides):
    config = compose_recipe(recipe, ["hardware=cpu", *overrides])
    return make_sandbox(coding_of(config).sandbox)


@pytest.mark.parametrize("recipe", ["sft", "grpo"])
def test_the_group_chooses_the_sandbox(recipe):
    assert isinstance(sandbox(recipe), EmbeddedSandbox)
    assert isinstance(sandbox(recipe, "sandbox=fusion", URLS), FusionSandbox)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["sandbox=fusion"], r"coding\.sandbox\.urls=\[\]: at least one server"),
        (["sandbox=nope"], "embedded fusion"),
        (["sandbox=fusion", "coding.sandbox.url=[http://one]"], r"mean coding\.sandbox\.urls"),
    ],
)
def test_a_wrong_choice_is_named_with_the_right_one(overrides, says):
    with pytest.raises(ConfigError, match=says):
        sandbox("grpo", *overrides)
