"""verl's asynchronous replay buffer, which trains on what was judged of a group and ends in an outage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from coding_model_project.errors import SandboxError
from coding_model_project.verl_ext.trainers.batch_fields import group_of, model_tokens
from coding_model_project.verl_ext.trainers.outages import Outages

_TRAIN = "train"
Reasons = tuple[set[str], set[str], set[str], Any]
"""verl's: groups that are too old, agree in their rewards or failed, and a count of the second."""


class CodingBuffer(ReplayBufferAsync):
    """Changes two of verl's rules about a group of which a session failed.

    verl evicts the whole group. Here its judged samples are trained on, as in synchronous training; only
    a group without any is evicted. And verl asks for another group at once, without end: with an open
    breaker each fails within milliseconds. Here the run ends when more than
    `coding.sandbox.max_failure_rate` of a step's samples could not be judged.
    """

    _outages: Outages
    _samples_per_group: int
    _on_evicted: Callable[[int], None]
    _wanted = 0

    @classmethod
    def in_place_of(
        cls,
        buffer: ReplayBufferAsync,
        *,
        outages: Outages,
        samples_per_group: int,
        on_evicted: Callable[[int], None],
    ) -> Self:
        """Take over a buffer that verl made.

        Args:
            on_evicted: takes the tokens of samples that are thrown away.
        """
        own = cls.__new__(cls)
        own.__dict__.update(vars(buffer))
        own._outages, own._samples_per_group = outages, samples_per_group
        own._on_evicted = on_evicted
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
        oldest = global_steps + 1 - (self.max_off_policy_threshold or global_steps + 1)
        # verl asks only of groups without a failure how old they are.
        stale |= {group for group in failed & judged if submitted[group] < oldest}
        return stale, agreed, failed - judged, counts

    def wait_for_sampleable(
        self, global_steps: int, partition_id: str, target_count: int
    ) -> tuple[set[str], dict[str, Any]]:
        self._wanted = target_count
        return super().wait_for_sampleable(global_steps, partition_id, target_count)

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: Reasons
    ) -> tuple[set[str], int, int, dict[str, Any]]:
        stale, agreed, failed, _ = eviction_reasons
        if lost := self._samples_of(partition_id, stale | agreed | failed):
            self._on_evicted(sum(model_tokens(lost, partition_id)))
        evicted = super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)
        if failed:
            self.failed |= failed
            self._end_an_outage()
        return evicted

    def _end_an_outage(self) -> None:
        """
        Raises:
            SandboxError: too many groups of this step failed.
        """
        n = self._samples_per_group
        refused = self._outages.not_isolated(lambda row: group_of(row.sample) in self.failed)
        lost = len(self.failed) * n - refused
        self._outages.stop(lost / (lost + self._wanted * n), "this step's")
        if len(self.failed) > 2 * self._wanted:
            raise SandboxError(
                f"{len(self.failed)} groups of samples failed while a step waited for {self._wanted}"
                f"{self._outages.why()}"
            )

    def queued_tokens(self) -> int:
        """Return the tokens of all samples that wait to be trained on."""
        self._sync_metadata_from_transfer_queue()
        waiting = set(self.prompt_global_steps[_TRAIN])
        return sum(model_tokens(self._samples_of(_TRAIN, waiting), _TRAIN))

    def restored_tokens(self) -> int:
        """Return the tokens of finished groups in a queue just restored, and clear what was trained on.

        A checkpoint is written while the samples of its last step are still there. Groups that were not
        finished are generated anew.
        """
        self._sync_metadata_from_transfer_queue()
        trained = {group_of(key) for key in self.partitions[_TRAIN]}
        self._clear_groups(_TRAIN, trained - set(self.prompt_global_steps[_TRAIN]))
        finished = self.finished_keys[_TRAIN] | self.failure_keys[_TRAIN]
        return sum(model_tokens(self._samples_of(_TRAIN, finished), _TRAIN))

    def _samples_of(self, partition: str, groups: set[str]) -> list[str]:
        return [key for key in self.partitions[partition] if group_of(key) in groups]
