"""Additions to verl's asynchronous PPO trainers: a bound on staleness, a token account, ends of hangs."""

from __future__ import annotations

import time
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from coding_model_project.configs.schema import TrainingMode, staleness_of
from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.launch.checks.machine_checks import UNITS
from coding_model_project.runs.ungradable import Ungradable
from coding_model_project.verl_ext.trainers.async_buffer import CodingBuffer
from coding_model_project.verl_ext.trainers.batch_fields import group_of, model_tokens
from coding_model_project.verl_ext.trainers.coding_trainer import CodingTrainer
from coding_model_project.verl_ext.trainers.generated import generated_tokens
from coding_model_project.verl_ext.trainers.outages import Belongs
from coding_model_project.verl_ext.trainers.token_account import TokenAccount

_POLL_S = 0.05
_WORST = "training/off_policy/trajectory_staleness_worst/max"
"""verl's metric: the most versions by which the weights of any of a step's samples lag behind."""


class AsyncCodingTrainer(CodingTrainer):
    """A mixin like `CodingTrainer`, to put before one of verl's asynchronous trainers."""

    replay_buffer: CodingBuffer

    def __init__(self, config: Any) -> None:
        self._account = TokenAccount()
        super().__init__(config)
        coding = config.coding
        self._max_staleness = staleness_of(TrainingMode(coding.mode), coding.max_staleness)
        self._groups: set[str] = set()
        self._generated = 0
        self._waits_from = 0.0

    def _adapt(self, buffer: ReplayBuffer) -> ReplayBuffer:
        assert type(buffer) is ReplayBufferAsync  # `async_checks` rejects a user's own

        def evicted(tokens: int) -> None:
            self._account.evicted += tokens

        buffer.poll_interval = min(buffer.poll_interval, _POLL_S)
        return CodingBuffer.in_place_of(
            buffer,
            outages=self._outages,
            groups_per_step=self.config.data.train_batch_size,
            samples_per_group=self.config.actor_rollout_ref.rollout.n,
            on_evicted=evicted,
        )

    def _load_checkpoint(self) -> None:
        try:
            super()._load_checkpoint()
        except ValueError as error:  # of TransferQueue
            if "Storage unit count mismatch" not in str(error):
                raise
            units = OmegaConf.select(self.config, UNITS)
            raise ConfigError(
                f"{UNITS}={units}: the checkpoint's queue has another number of storage units "
                f"({error}): set the key to the checkpoint's"
            ) from error
        self._account.restored = self.replay_buffer.restored_tokens()

    def on_step_begin(self) -> None:
        self._groups.clear()
        self.replay_buffer.failed.clear()
        super().on_step_begin()
        self._waits_from = time.time()

    def on_sample_end(self) -> None:
        with self._sync_deadline():  # verl waits here for idle rollout servers
            super().on_sample_end()

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self._groups |= {group_of(key) for key in batch.keys}
        self._account.trained += sum(model_tokens(batch.keys, batch.partition_id))
        return super()._balance_batch(batch, metrics, *args, **kwargs)

    def _belongs_to(self, batch: Any) -> Belongs:
        groups = {group_of(key) for key in batch.keys}
        return lambda row: group_of(row.sample) in groups

    def _belongs(self, row: Ungradable) -> bool:
        # By its group, since a row's step is the one that requested it.
        return group_of(row.sample) in self._groups | self.replay_buffer.failed

    @property
    def _requested_samples(self) -> int:
        n = self.config.actor_rollout_ref.rollout.n
        return self._expected_samples + len(self.replay_buffer.failed) * n

    def _waits_since(self) -> float:
        return self._waits_from

    def _token_metrics(self) -> dict[str, float]:
        # Tokens go from generated to queued to trained; counting in reverse order misses none.
        workers = self.agent_loop_manager.agent_loop_workers
        counted: list[dict[str, int]] = ray.get([one.tokens.remote() for one in workers])
        queued = self.replay_buffer.queued_tokens()
        generated = generated_tokens(self._servers())
        account = self._account.metrics(
            generated=generated,
            queued=queued,
            validated=sum(one["validated"] for one in counted),
            left_out=sum(one["left_out"] for one in counted),
        )
        if generated is None:
            return account
        before, self._generated = self._generated, generated
        return account | {"rollout/generated_tokens": generated - before}

    def _check_step(self, metrics: dict[str, Any]) -> None:
        super()._check_step(metrics)
        if metrics[_WORST] > self._max_staleness:
            raise TrainingError(
                f"step {self.global_steps}: {_WORST} is {metrics[_WORST]:g}, above coding.max_staleness="
                f"{self._max_staleness}: the step's samples are older than allowed; this is a bug, "
                "please report it"
            )
