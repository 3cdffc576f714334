"""Runs that do not resume, at a URL with checkpoints."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.launch import run as launch_run
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.checkpoints import write_manifest


@pytest.mark.parametrize("mode", ["disable", "resume_path"])
def test_a_run_that_does_not_resume_refuses_a_url_with_checkpoints(tmp_path, mode):
    """Its own would be the oldest there, and deleted after their upload."""
    url = f"memory://{tmp_path.name}/checkpoints"
    config = OmegaConf.create(
        {
            "trainer": {"resume_mode": mode, "default_local_dir": str(tmp_path / "new")},
            "coding": {"checkpoints": {"url": url, "keep": 2}, "run_dir": "run"},
        }
    )
    launch_run._prepare_resume(config)
    other = tmp_path / "global_step_100"
    other.mkdir()
    (other / "weights").write_bytes(b"w")
    write_manifest(other)
    CheckpointStore(url, 2, print).upload(other)
    with pytest.raises(
        ConfigError, match=rf"has checkpoints up to global_step_100, which .*={mode} does not"
    ):
        launch_run._prepare_resume(config)
