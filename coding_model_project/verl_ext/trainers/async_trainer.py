"""Additions to verl's asynchronous PPO trainers: a bound on staleness, a token account, ends of hangs.

Their replay buffer keeps the judged samples of a group and ends the run in an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

import ray
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from coding_model_project.configs.schema import TrainingMode, staleness_of
from coding_model_project.errors import ConfigError, SandboxError, TrainingError
from coding_model_project.launch.checks.machine_checks import UNITS
from coding_model_project.runs.ungradable import Ungradable
from coding_model_project.verl_ext.trainers.batches import group_of, model_tokens
from coding_model_project.verl_ext.trainers.coding_trainer import CodingTrainer
from coding_model_project.verl_ext.trainers.outages import Belongs, Outages
from coding_model_project.verl_ext.trainers.tokens import TokenAccount, generated_tokens

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


_TRAIN = "train"
Reasons = tuple[set[str], set[str], set[str], Any]
"""verl's reasons to evict: groups that are too old, have equal rewards or failed; count of the second."""


class CodingBuffer(ReplayBufferAsync):
    """A buffer that changes two of verl's rules for a group with a failed session.

    verl evicts the whole group. This buffer keeps its judged samples, as in synchronous training, and
    evicts only a group without any. verl also requests another group at once, without end; with an open
    circuit breaker each fails within milliseconds. This buffer ends the run when more than
    `coding.sandbox.max_failure_rate` of a step's samples could not be judged.
    """

    _outages: Outages
    _samples_per_group: int
    _groups_per_step: int
    _on_evicted: Callable[[int], None]

    @classmethod
    def in_place_of(
        cls,
        buffer: ReplayBufferAsync,
        *,
        outages: Outages,
        groups_per_step: int,
        samples_per_group: int,
        on_evicted: Callable[[int], None],
    ) -> Self:
        """Return a buffer with the state of one that verl created.

        Args:
            on_evicted: called with the number of tokens of evicted samples.
        """
        own = cls.__new__(cls)
        own.__dict__.update(vars(buffer))
        own._outages, own._on_evicted = outages, on_evicted
        own._groups_per_step, own._samples_per_group = groups_per_step, samples_per_group
        own.failed = set()
        return own

    failed: set[str]
    """Groups without a judged sample since the last step began; the trainer clears it."""

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Reasons:
        stale, agreed, failed, counts = super()._terminal_eviction_reasons(
            global_steps, partition_id
        )
        judged = {group_of(key) for key in self.partitions[partition_id]}
        submitted = self.prompt_global_steps[partition_id]
        assert self.max_off_policy_threshold is not None  # `rules.yaml` rejects null
        oldest = global_steps + 1 - self.max_off_policy_threshold
        # verl checks the age only of groups without a failure.
        stale |= {group for group in failed & judged if submitted[group] < oldest}
        return stale, agreed, failed - judged, counts

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: Reasons
    ) -> tuple[set[str], int, int, dict[str, Any]]:
        stale, agreed, failed, _ = eviction_reasons
        if lost := self._samples_of(partition_id, stale | agreed):  # failed groups have none
            self._on_evicted(sum(model_tokens(lost, partition_id)))
        evicted = super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)
        if failed:
            self.failed |= failed
            self._end_an_outage()
        return evicted

    def _end_an_outage(self) -> None:
        """End the run if too many groups of this step failed.

        Raises:
            SandboxError: too many groups of this step failed.
        """
        n, wanted = self._samples_per_group, self._groups_per_step
        refused = self._outages.not_isolated(lambda row: group_of(row.sample) in self.failed)
        lost = len(self.failed) * n - refused
        self._outages.stop(lost / (lost + wanted * n), "this step's")
        if len(self.failed) > 2 * wanted:
            raise SandboxError(
                f"{len(self.failed)} groups of samples failed while a step waited for {wanted}"
                f"{self._outages.why()}"
            )

    def queued_tokens(self) -> int:
        """Return the number of tokens of all finished groups in the queue."""
        self._sync_metadata_from_transfer_queue()
        return self._finished_tokens()

    def restored_tokens(self) -> int:
        """Clear the trained samples of a restored queue, and return the tokens of its finished groups.

        A checkpoint still contains the samples of its last step. Unfinished groups are generated again.
        """
        self._sync_metadata_from_transfer_queue()
        trained = {group_of(key) for key in self.partitions[_TRAIN]}
        self._clear_groups(_TRAIN, trained - set(self.prompt_global_steps[_TRAIN]))
        return self._finished_tokens()

    def _finished_tokens(self) -> int:
        # TransferQueue lists a sample of an unfinished group before its tokens can be read.
        finished = self.finished_keys[_TRAIN] | self.failure_keys[_TRAIN]
        return sum(model_tokens(self._samples_of(_TRAIN, finished), _TRAIN))

    def _samples_of(self, partition: str, groups: set[str]) -> list[str]:
        return [key for key in self.partitions[partition] if group_of(key) in groups]
