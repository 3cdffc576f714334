"""Trackers, with the real W&B, offline: one run for all attempts."""

import json

import pytest
from omegaconf import OmegaConf

pytestmark = pytest.mark.verl


def test_attempts_of_a_run_are_one_run_of_wandb(tmp_path, monkeypatch):
    import wandb

    from coding_model_project.launch.device import log_into
    from coding_model_project.verl_ext.trainers.loggers import start_wandb

    (tmp_path / "run.json").write_text(json.dumps({"host": "here", "created": 1.5}))
    trainer = {"project_name": "p", "experiment_name": "e", "logger": ["file", "wandb"]}
    config = OmegaConf.create({"coding": {"run_dir": str(tmp_path)}, "trainer": trainer})
    for name in ("WANDB_DIR", "WANDB_MODE", "TENSORBOARD_DIR", "VERL_FILE_LOGGER_PATH"):
        monkeypatch.delenv(name, raising=False)
    log_into(tmp_path)
    for _ in range(2):
        with monkeypatch.context() as attempt:
            for name in ("init", "log", "finish"):  # restored, as in a new process
                attempt.setattr(wandb, name, getattr(wandb, name))
            start_wandb(config)
            wandb.init(project="verl's own call")
            wandb.log({"loss": 1.0})
            wandb.finish()
    folders = list(tmp_path.glob("wandb/offline-run-*"))
    assert len({folder.name.rpartition("-")[2] for folder in folders}) == 1
    assert all(list(folder.glob("run-*.wandb")) for folder in folders)
