"""A run at a URL that has checkpoints: its own, another run's, or some that it does not resume from."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.launch import run as launch_run
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.checkpoints import checkpoints_in, write_manifest


@pytest.fixture
def url(tmp_path):
    return f"memory://{tmp_path.name}/checkpoints"


def configured(url, folder, *, lr=0.1, mode="auto", force=False, key="secret-abc-1"):
    return OmegaConf.create(
        {
            "trainer": {"resume_mode": mode, "default_local_dir": str(folder / "checkpoints")},
            "optim": {"lr": lr},
            "coding": {
                "checkpoints": {"url": url, "keep": 2},
                "run_dir": str(folder),
                "force": force,
                "sandbox": {"api_key": key},
            },
        }
    )


def start(url, folder, inputs=None, **changed):
    config = configured(url, folder, **changed)
    launch_run._prepare_resume(config, config, inputs or {"data.train_files a.parquet": "9 bytes"})
    return [path.name for path in checkpoints_in(folder / "checkpoints")]


def upload(url, tmp_path, step):
    made = tmp_path / f"global_step_{step}"
    made.mkdir()
    (made / "weights").write_bytes(b"w")
    write_manifest(made)
    CheckpointStore(url, 2, print).upload(made)


@pytest.mark.parametrize("mode", ["disable", "resume_path"])
def test_a_run_that_does_not_resume_refuses_a_url_with_checkpoints(tmp_path, url, mode):
    """Its own would be the oldest there, and deleted after their upload."""
    start(url, tmp_path / "new", mode=mode)
    upload(url, tmp_path, 100)
    with pytest.raises(
        ConfigError, match=rf"has checkpoints up to global_step_100, which .*={mode} does not"
    ):
        start(url, tmp_path / "new", mode=mode)


def test_another_run_does_not_resume_from_them(tmp_path, url):
    assert start(url, tmp_path / "one") == []
    upload(url, tmp_path, 7)
    with pytest.raises(ConfigError, match=r"another run \(optim\.lr: 0\.1 → 0\.2\): set another"):
        start(url, tmp_path / "two", lr=0.2)
    with pytest.raises(
        ConfigError, match=r"another run \(data\.train_files a\.parquet: 9 bytes → 8"
    ):
        start(url, tmp_path / "two", {"data.train_files a.parquet": "8 bytes"})
    assert start(url, tmp_path / "two", lr=0.2, force=True) == ["global_step_7"]
    assert start(url, tmp_path / "two", lr=0.2) == ["global_step_7"]  # it is the owner now
    with pytest.raises(ConfigError, match="another run"):
        start(url, tmp_path / "one")


def test_the_same_run_resumes_in_another_folder_with_another_key(tmp_path, url):
    start(url, tmp_path / "one")
    upload(url, tmp_path, 7)
    assert b"secret-abc" not in CheckpointStore(url, 2, print).read_owner()
    assert start(url, tmp_path / "elsewhere" / "one", key="secret-xyz-2") == ["global_step_7"]


def test_a_url_without_checkpoints_is_anybodys(tmp_path, url):
    start(url, tmp_path / "one")
    start(url, tmp_path / "two", lr=0.2)
    upload(url, tmp_path, 7)
    assert start(url, tmp_path / "two", lr=0.2) == ["global_step_7"]


def test_checkpoints_of_a_version_that_recorded_no_run_are_resumed_from(tmp_path, url):
    upload(url, tmp_path, 7)
    assert start(url, tmp_path / "one") == ["global_step_7"]
