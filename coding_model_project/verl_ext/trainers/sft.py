"""SFT with verl's own trainer.

torchrun -m coding_model_project.verl_ext.trainers.sft CONFIG.yaml  (command of `train` for several ranks)
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from coding_model_project.launch.checks.checks import check_sft
from coding_model_project.verl_ext.trainers import ranks


def train(config: DictConfig) -> None:
    """Train, resuming from the last checkpoint if there is one.

    Raises:
        ConfigError: batch sizes do not divide; see `ranks.train`.
        TrainingError: a training process failed.
    """
    check_sft(config)
    ranks.train(config, "coding_model_project.verl_ext.trainers.sft", _trainer, "SFT")


def _trainer(config: DictConfig) -> Any:
    from verl.trainer.sft_trainer import SFTTrainer

    return SFTTrainer(config=config)


if __name__ == "__main__":
    ranks.main(_trainer)
