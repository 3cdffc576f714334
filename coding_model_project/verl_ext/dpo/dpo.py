"""DPO on verl's engines: verl's SFT trainer with rows that are pairs and a loss on pairs.

torchrun -m coding_model_project.verl_ext.dpo.dpo CONFIG.yaml  (command of `train` for several ranks)

    dpo_data.py     pairs as verl's data set: two tokenised conversations each
    dpo_loss.py     the losses, in torch alone
    dpo_trainer.py  the trainer; log-probabilities under the starting model, computed once and cached
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from coding_model_project.launch.checks.checks import check_dpo
from coding_model_project.verl_ext.trainers import ranks


def train(config: DictConfig) -> None:
    """Train, resuming from the last checkpoint if there is one.

    Raises:
        ConfigError: keys, pairs or a checkpoint are invalid; see `ranks.train`.
        TrainingError: a training process failed.
    """
    check_dpo(config)
    ranks.train(config, "coding_model_project.verl_ext.dpo.dpo", _trainer, "DPO")


def _trainer(config: DictConfig) -> Any:
    from coding_model_project.verl_ext.dpo.dpo_trainer import DPOTrainer

    return DPOTrainer(config)


if __name__ == "__main__":
    ranks.main(_trainer)
