"""A checkpoint to resume from that is not there is refused before anything starts."""

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import checks
from coding_model_project.launch.compose import compose_recipe


@pytest.fixture
def check(tmp_path):
    (tmp_path / "global_step_3").mkdir()

    def run(recipe, mode, path):
        path = "null" if path is None else tmp_path / path
        keys = [f"trainer.resume_mode={mode}", f"trainer.resume_from_path={path}"]
        config = compose_recipe(recipe, ["hardware=cpu", *keys])
        checks._check_resume_path(config)

    return run


@pytest.mark.parametrize("recipe", ["sft", "grpo"])
def test_only_an_existing_checkpoint_is_resumed_from(check, recipe):
    check(recipe, "resume_path", "global_step_3")
    check(recipe, "auto", None)
    check(recipe, "disable", "nowhere/global_step_4")
    for path, says in (
        ("nowhere/global_step_4", "no such folder"),
        (None, "expected the path of a checkpoint"),
        ("latest", "expected the path of a checkpoint"),
    ):
        with pytest.raises(ConfigError, match=says) as caught:
            check(recipe, "resume_path", path)
        assert "trainer.resume_from_path=" in str(caught.value)
        assert str(path) in str(caught.value)
