"""A stop that is requested between two steps, such as during a validation, loses no trained step."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.verl


@pytest.fixture
def trainer(cpu_platform, tmp_path):
    from coding_model_project.verl_ext.trainers import ppo_trainer

    class Trainer(ppo_trainer.SyncTrainer):
        def __init__(self):
            self._log_dir, self._outages = tmp_path, None
            self.saved, self.ended, self.timing_raw = [], [], {}
            self.global_steps, self.total_training_steps = 1, 10

        def _save_checkpoint(self):
            self.saved.append(self.global_steps)

        def _fatal(self, reason):
            self.ended.append(reason)

        def _servers(self):
            return []

        def _sync_deadline(self):
            return self.checkpoint_manager

    class Nothing:
        def update_weights(self, _): ...
        def __enter__(self): ...
        def __exit__(self, *_): ...

    made = Trainer()
    made.checkpoint_manager = Nothing()
    return made


def test_before_the_first_step_there_is_nothing_to_save(trainer, tmp_path):
    (tmp_path / "stop").touch()
    trainer.on_step_begin()
    assert trainer.ended == ["stopped on request before the first step"]


def test_between_two_steps_the_next_one_ends_with_a_checkpoint(trainer, tmp_path):
    trainer.on_step_begin()
    trainer.on_step_end()
    (tmp_path / "stop").touch()  # during the validation after the step
    trainer.global_steps += 1
    trainer.on_step_begin()
    trainer.on_step_end()
    assert trainer.ended == []
    assert trainer.saved == [2]
    assert trainer.total_training_steps == 2
