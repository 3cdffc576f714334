"""Which samples a step trains on: the sampler of `coding.training.sampler=online`, `max_resampling`'s cap
on verl's replay buffer, and the replay buffer of asynchronous training.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from omegaconf import DictConfig
from torch.utils.data import Sampler
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from coding_model_project.data.rates import read_samples
from coding_model_project.data.training.difficulty import DrawByWorth
from coding_model_project.errors import SandboxError
from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY
from coding_model_project.verl_ext.trainers.batches import group_of, model_tokens
from coding_model_project.verl_ext.trainers.guards import Outages


class OnlineSampler(Sampler[int]):
    """A sampler that draws rows by `DrawByWorth`, as many per epoch as there are rows.

    torchdata's loader saves `state_dict` with its own state, which verl writes into each checkpoint.
    """

    def __init__(self, draws: DrawByWorth, n_rows: int) -> None:
        self._draws, self._n_rows = draws, n_rows
        self._left = 0

    def __iter__(self) -> Iterator[int]:
        self._left = self._left or self._n_rows
        while self._left:
            self._left -= 1
            yield self._draws.draw()

    def __len__(self) -> int:
        return self._n_rows

    def update(self, infos: Iterable[Mapping[str, Any]]) -> None:
        """Update the rates with a step's samples.

        Args:
            infos: reward_extra_info of each sample.
        """
        groups: dict[str, list[float]] = defaultdict(list)
        for info in infos:
            groups[json.loads(info[SAMPLE_KEY])["problem"]].append(info["acc"])
        for problem, accepted in groups.items():
            self._draws.seen(problem, int(sum(accepted)), len(accepted))

    def state_dict(self) -> dict[str, Any]:
        """See `DrawByWorth.state_dict`."""
        return {"left": self._left, **self._draws.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `DrawByWorth.load_state_dict`."""
        self._draws.load_state_dict(state)
        self._left = state["left"]


def with_sampler(loader: StatefulDataLoader, config: DictConfig) -> tuple[Any, OnlineSampler]:
    """Return a copy of verl's loader of training rows with an online sampler, and the sampler."""
    dataset: Any = loader.dataset
    ids = [str(row["ground_truth"]) for row in dataset.dataframe["reward_model"]]
    given = config.coding.training.rates
    draws = DrawByWorth(
        ids,
        seed=config.data.seed,
        apart=config.data.train_batch_size,
        rates=read_samples(given) if given else None,
    )
    sampler = OnlineSampler(draws, len(ids))
    return StatefulDataLoader(
        dataset=dataset,
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        drop_last=loader.drop_last,
        collate_fn=loader.collate_fn,
        sampler=sampler,
    ), sampler


def cap_resampling(buffer: Any, most: float) -> None:
    """Make a replay buffer stop filtering groups once it has replaced enough of them in a step.

    verl has no cap in the V1 trainer: with a policy that solves all or nothing it samples for ever.

    Args:
        buffer: verl's ReplayBuffer, with `algorithm.filter_groups` on.
        most: most replacement prompts per step.
    """
    metric, refill, sample = buffer.filter_groups_metric, buffer.refill_fn, buffer.sample
    n_sampled = 0

    def counted(n: int) -> Any:
        nonlocal n_sampled
        n_sampled += n
        if n_sampled >= most:
            buffer.filter_groups_metric = None
        return refill(n)

    def capped(*args: Any, **kwargs: Any) -> Any:
        nonlocal n_sampled
        n_sampled, buffer.filter_groups_metric = 0, metric
        batch, metrics = sample(*args, **kwargs)
        if n_sampled:
            lifted = float(buffer.filter_groups_metric is None)
            metrics |= {"training/resampled_prompts": n_sampled, "training/filter_lifted": lifted}
        return batch, metrics

    buffer.refill_fn, buffer.sample = counted, capped


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
