"""The sampler of `coding.training.sampler=online`, saved in checkpoints, and `max_resampling`'s cap."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig
from torch.utils.data import Sampler
from torchdata.stateful_dataloader import StatefulDataLoader

from coding_model_project.data.rates import read_samples
from coding_model_project.data.training.difficulty import DrawByWorth
from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY


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


def cap(buffer: Any, most: float) -> None:
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
