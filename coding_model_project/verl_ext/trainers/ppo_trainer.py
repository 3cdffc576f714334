"""verl's PPO trainers with the additions of `CodingTrainer`, by their names in `trainer.v1.trainer_mode`.

coding_sync            generates, then trains, on the same devices
coding_colocate_async  same devices; judging and episodes continue while it trains
coding_separate_async  separate devices, so that it generates while it trains
"""

from __future__ import annotations

import logging
from typing import Any

from verl.trainer.ppo.v1 import trainer_separate_async
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from coding_model_project.verl_ext.trainers import sampling
from coding_model_project.verl_ext.trainers.async_trainer import AsyncCodingTrainer
from coding_model_project.verl_ext.trainers.coding_trainer import CodingTrainer
from coding_model_project.verl_ext.trainers.tokens import generated_tokens

POLL_S = 0.05
"""Seconds between polls for finished trajectories; verl's 2 s are longer than a tiny model's step."""


@register_trainer("coding_sync")
class SyncTrainer(CodingTrainer, PPOTrainerSync):
    """A trainer that trains only on samples generated with the newest weights."""

    MODE = "sync"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._generated_before: int | None = None
        self._generated: int | None = None

    def _adapt(self, buffer: ReplayBuffer) -> ReplayBuffer:
        if type(buffer) is ReplayBuffer:  # a user's own sampler keeps its interval
            buffer.poll_interval = min(buffer.poll_interval, POLL_S)
            allowed = self.config.coding.training.max_resampling
            if allowed and buffer.filter_groups_metric is not None:
                sampling.cap(buffer, allowed * self.config.data.train_batch_size)
        return buffer

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._generated_before = generated_tokens(self._servers())

    def on_sample_end(self) -> None:
        self._generated = generated_tokens(self._servers())
        super().on_sample_end()

    def _token_metrics(self) -> dict[str, float]:
        if self._generated is None or self._generated_before is None:
            return {}
        return {"rollout/generated_tokens": self._generated - self._generated_before}


@register_trainer("coding_colocate_async")
class ColocateAsyncTrainer(AsyncCodingTrainer, PPOTrainerColocateAsync):
    """A trainer that interrupts only generation while it trains, on the same devices."""

    MODE = "colocate_async"


@register_trainer("coding_separate_async")
class SeparateAsyncTrainer(AsyncCodingTrainer, PPOTrainerSeparateAsync):
    """A trainer that generates on separate devices, interrupted only to load new weights."""

    MODE = "separate_async"

    def _setup(self) -> None:
        # verl 0.9.1 passes print's `flush=True` to this logger, which raises a TypeError at level INFO.
        logger = trainer_separate_async.logger
        level = logger.level
        logger.setLevel(logging.WARNING)
        try:
            super()._setup()
        finally:
            logger.setLevel(level)
