"""The step from which verl's SFT trainer resumes."""

import pytest

pytestmark = pytest.mark.verl


def test_a_runs_name_may_look_like_a_checkpoints(monkeypatch):
    from verl.utils.checkpoint import checkpoint_handler

    from coding_model_project.verl_ext.trainers.verl_checkpoints import read_last_step

    monkeypatch.setattr(checkpoint_handler, "extract_step", checkpoint_handler.extract_step)
    read_last_step()
    path = "outputs/after_global_step_900/checkpoints/global_step_4"
    assert checkpoint_handler.extract_step(path) == 4
