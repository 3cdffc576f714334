"""verl's PPO trainers with the additions of `CodingTrainer`, by their names in `trainer.v1.trainer_mode`.

coding_sync            generates, then trains, on the same devices
coding_colocate_async  same devices; judging and episodes continue while it trains
coding_separate_async  separate devices, so that it generates while it trains
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import ray
import stamina
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import trainer_separate_async
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from coding_model_project.configs.schema import TrainingMode, staleness_of
from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.http import announced, reason
from coding_model_project.launch.checks.machine_checks import UNITS
from coding_model_project.runs.rollouts import Ungradable
from coding_model_project.verl_ext.trainers.batches import group_of, model_tokens
from coding_model_project.verl_ext.trainers.coding_trainer import CodingTrainer
from coding_model_project.verl_ext.trainers.guards import Belongs
from coding_model_project.verl_ext.trainers.sampling import CodingBuffer, cap_resampling

_POLL_S = 0.05
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
            buffer.poll_interval = min(buffer.poll_interval, _POLL_S)
            allowed = self.config.coding.training.max_resampling
            if allowed and buffer.filter_groups_metric is not None:
                cap_resampling(buffer, allowed * self.config.data.train_batch_size)
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


_WORST = "training/off_policy/trajectory_staleness_worst/max"
"""verl's metric: the most versions by which the weights of any of a step's samples lag behind."""


class AsyncCodingTrainer(CodingTrainer):
    """A mixin like `CodingTrainer`, to put before one of verl's asynchronous trainers."""

    replay_buffer: CodingBuffer  # pyrefly: ignore[bad-override-mutable-attribute]  # `_adapt` makes it

    def __init__(self, config: Any) -> None:
        self._account = TokenAccount()
        super().__init__(config)
        coding = config.coding
        self._max_staleness = staleness_of(TrainingMode(coding.mode), coding.max_staleness)
        self._groups: set[str] = set()
        self._generated = 0
        self._waits_from = 0.0

    def _adapt(self, buffer: ReplayBuffer) -> ReplayBuffer:
        assert type(buffer) is ReplayBufferAsync  # `rules.yaml` rejects a user's own

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


_COUNTER = "vllm:generation_tokens_total"
_TIMEOUT_S = 10.0
_ATTEMPTS = 3


def generated_tokens(addresses: Sequence[str]) -> int | None:
    """Return the number of tokens that all servers have generated, by vLLM's own counters.

    Args:
        addresses: "host:port" of each server.

    Returns:
        None if the servers do not count (another engine, or `rollout.disable_log_stats=true`).

    Raises:
        TrainingError: a server does not answer; names it.
    """
    total = None
    for address in addresses:
        url = f"http://{address}/metrics"
        try:
            with announced(None, attempts=_ATTEMPTS):
                page = _read(url)
        except httpx.HTTPError as error:
            raise TrainingError(
                f"rollout server {address} does not answer ({reason(error)}): the server, its node or "
                "the link is down; run the same command once they are up to resume"
            ) from error
        counts = [
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith(_COUNTER)
        ]
        if counts:
            total = (total or 0) + int(sum(counts))
    return total


@stamina.retry(on=httpx.HTTPError, attempts=_ATTEMPTS, timeout=None)
def _read(url: str) -> str:
    """Return a page; retry, since a server may be busy with generation.

    Raises:
        httpx.HTTPError: it cannot be read.
    """
    # Without certificates, which plain HTTP does not need and which take 70 ms to load.
    page = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False, verify=False)
    return page.raise_for_status().text


@dataclass(slots=True, kw_only=True)
class TokenAccount:
    """Token counts of an attempt since it began.

    generated + restored = trained + evicted + validated + left out + in flight. All but the last term are
    counted where they arise; "in flight" is the rest. It includes the queued samples, which are also
    counted, and answers that are being generated or judged.
    """

    restored: int = 0
    """Tokens of queued samples in the checkpoint that the attempt started from."""
    trained: int = 0
    evicted: int = 0
    """Tokens of judged samples that became too old, or whose group has equal rewards."""

    def metrics(
        self, *, generated: int | None, queued: int, validated: int, left_out: int
    ) -> dict[str, float]:
        """Return the account as metrics.

        Args:
            generated: tokens by the rollout servers' own counters, read after all others; None if they do
                not count.
            queued: tokens of finished groups in the queue.
            validated: tokens of validation samples.
            left_out: tokens of failed sessions, and of answers that an agent's loop did not hand over.

        Raises:
            TrainingError: the account does not balance.
        """
        known = {
            "rollout/trained_tokens_total": self.trained,
            "rollout/evicted_tokens_total": self.evicted,
            "rollout/validated_tokens_total": validated,
            "rollout/left_out_tokens_total": left_out,
        }
        if generated is None:
            return {**known, "rollout/queued_tokens": queued}
        in_flight = generated + self.restored - sum(known.values())
        if in_flight < queued:
            raise TrainingError(
                f"{sum(known.values())} tokens were trained on, evicted, validated or left out and "
                f"{queued} are queued, but only {generated} were generated by the rollout servers and "
                f"{self.restored} restored: some were counted twice; this is a bug, please report it"
            )
        return {
            **known,
            "rollout/generated_tokens_total": generated,
            "rollout/restored_tokens": self.restored,
            "rollout/in_flight_tokens": in_flight,
            "rollout/queued_tokens": queued,
        }
