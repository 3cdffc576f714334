"""SFT by verl's own trainer.

torchrun -m coding_model_project.verl_ext.trainers.sft CONFIG.yaml  (what `train` starts for ranks)
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from coding_model_project.launch.checks.checks import check_sft
from coding_model_project.verl_ext.trainers import ranks


def train(config: DictConfig) -> None:
    """Train, resuming if there is something to resume from.

    Raises:
        ConfigError: batches that do not work out; see `ranks.train`.
        TrainingError: a training process failed.
    """
    check_sft(config)
    ranks.train(config, "coding_model_project.verl_ext.trainers.sft", _trainer, "SFT")


def _trainer(config: DictConfig) -> Any:
    from verl.trainer.sft_trainer import SFTTrainer

    return SFTTrainer(config=config)


if __name__ == "__main__":
    ranks.main(_trainer)
