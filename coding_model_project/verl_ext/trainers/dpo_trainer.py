"""DPO trainer: verl's SFT trainer with pairs, a loss on pairs, and the reference's log-probabilities."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from omegaconf import DictConfig
from torch import distributed
from torch.utils.data import DataLoader
from verl.trainer import sft_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.tracking import Tracking

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.checks import files
from coding_model_project.verl_ext.trainers import dpo_pairs

PREFIX = "dpo/"

Validation = dict[str, list[tuple[int, float]]]
"""Batches so far by metric: the number of pairs per rank, and the mean over these."""


def engine_loss(
    model_output: dict[str, Any], data: Any, dp_group: Any = None, *, settings: DictConfig
) -> tuple[torch.Tensor, dict[str, float]]:
    """Compute a micro-batch's share of the loss and the metrics; verl's engines call it.

    Args:
        data: batch whose `global_batch_size` counts the pairs of all micro-batches and ranks.
        settings: as `schema.DPOConfig`.

    Returns:
        Values that add up, over micro-batches and ranks, to means over the pairs of the batch. The loss
        is multiplied by the number of ranks, because gradients are averaged over them.
    """
    log_probs, mask, reference = model_output["log_probs"], data["loss_mask"], data["reference"]
    values = dpo_pairs.pair_losses(log_probs, mask, reference, settings)
    sums = {name: value.sum() / data["global_batch_size"] for name, value in values.items()}
    metrics = {PREFIX + name: value.item() for name, value in sums.items()}
    return sums["loss"] * data["dp_size"], metrics


class DPOTrainer(sft_trainer.SFTTrainer):
    """A trainer that counts batches and micro-batches in pairs, and never splits a pair."""

    def _build_engine(self) -> None:
        super()._build_engine()
        loss = functools.partial(engine_loss, settings=self.config.coding.dpo)
        self.training_client.set_loss_fn(loss)

    def _build_dataset(self) -> None:
        self.train_dataset = self._pairs("data.train_files")
        self.val_dataset = self._pairs("data.val_files") if self.config.data.val_files else None

    def _pairs(self, key: str) -> dpo_pairs.PairDataset:
        names = files(self.config, key)
        dataset = dpo_pairs.PairDataset(names, self.model_config.tokenizer, self.config)
        if self.rank == 0:
            aside = [f"{n} set aside ({why})" for why, n in dataset.set_aside.items() if n]
            print(", ".join([f"{key}: {len(dataset)} pairs", *aside]))  # noqa: T201
        batch, known = self.config.data.train_batch_size, self.model_config.hf_config.vocab_size
        if len(dataset) < batch and key == "data.train_files":
            raise ConfigError(
                f"{key}: {len(dataset)} usable pairs do not fill one batch of "
                f"data.train_batch_size={batch}; lower it, or add pairs"
            )
        if dataset.max_token >= known:
            raise ConfigError(
                f"model.path={self.config.model.path}: its tokenizer returns token {dataset.max_token}, "
                f"but the model has only {known}; use the tokenizer of this model"
            )
        return dataset

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        collate = dpo_pairs.PairCollator(self.config.data.pad_mode)
        self.train_dataloader.collate_fn = collate
        if self.val_dataset is not None:  # verl's loader would drop the last, partial batch
            self.val_dataloader = DataLoader(
                self.val_dataset,
                batch_size=self.train_batch_size_per_dp,
                sampler=self.val_sampler,
                collate_fn=collate,
                num_workers=self.config.data.num_workers,
            )

    def _init_engine(self) -> None:  # pyrefly: ignore[bad-override]  # verl's calls an abstract `reset`
        super()._init_engine()  # loads the starting model; a checkpoint comes later
        data = self.config.data
        step = (
            self.train_batch_size_per_dp if data.use_dynamic_bsz else data.micro_batch_size_per_gpu
        )
        for dataset in (self.train_dataset, self.val_dataset):
            if dataset is None:
                continue
            assert isinstance(dataset, dpo_pairs.PairDataset)
            dataset.reference = reference_log_probs(
                self.training_client, dataset, self._meta(), step
            )
        self.validation: Validation = defaultdict(list)
        client = self.training_client
        client.train_batch = _together(client.train_batch)
        client.infer_batch = self._noted(client.infer_batch)

    def _meta(self) -> dict[str, Any]:
        """Return the settings that the engine gets with a batch; `fit` passes the same in training."""
        data = self.config.data
        return {
            "use_remove_padding": self.config.model.use_remove_padding,
            "use_dynamic_bsz": data.use_dynamic_bsz,
            "max_token_len_per_gpu": data.max_token_len_per_gpu,
            "temperature": 1.0,
            "pad_mode": data.pad_mode,
            "pad_token_id": self.model_config.tokenizer.pad_token_id,
            "force_group_size": 2,
        }

    def _noted(self, infer_batch: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `infer_batch` to record all metrics of validation batches; `fit` reads only the loss.

        The wrapper also corrects the number of pairs, which `fit` sets too high for the last batch.
        """
        micro = self.config.data.micro_batch_size_per_gpu
        ranks = self.engine.get_data_parallel_size()

        def infer_and_note(data: Any) -> Any:
            n = len(data) // 2
            tu.assign_non_tensor(
                data,
                force_group_size=2,
                global_batch_size=n * ranks,
                micro_batch_size_per_gpu=math.gcd(n, micro),
            )
            output = infer_batch(data)
            for name, parts in tu.get(output, "metrics").items():
                if name.startswith(PREFIX):
                    self.validation[f"val/{name}"].append((n, total(parts)))
            return output

        return infer_and_note

    def fit(self) -> None:
        # `fit` creates its logger by this name. SFT in the same process needs verl's own one again.
        module: Any = sft_trainer
        plain = module.Tracking
        module.Tracking = functools.partial(_PairTracking, self.validation)
        try:
            super().fit()
        finally:
            module.Tracking = plain


class _PairTracking(Tracking):
    """verl's loggers, which get means over a batch's pairs instead of the parts."""

    def __init__(self, validation: Validation, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._validation = validation

    def log(self, data: dict[str, Any], step: int, backend: Any = None) -> None:
        data = {k: total(v) if k.startswith(PREFIX) else v for k, v in data.items()}
        if "val/loss" in data:
            for name, batches in self._validation.items():
                data[name] = sum(n * mean for n, mean in batches) / sum(n for n, _ in batches)
            data["val/loss"] = data[f"val/{PREFIX}loss"]  # as a mean over pairs too
            self._validation.clear()
        super().log(data, step, backend)


def total(parts: Any) -> float:
    """Return the sum of nested lists, with a list of micro-batches for each rank."""
    return sum(map(total, parts)) if isinstance(parts, list) else float(parts)


def _together(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a call so that the engine keeps the rows of a pair in one micro-batch."""

    def with_pairs(data: Any) -> Any:
        tu.assign_non_tensor(data, force_group_size=2)
        return call(data)

    return with_pairs


def reference_log_probs(
    client: Any, dataset: dpo_pairs.PairDataset, meta: Mapping[str, Any], step: int
) -> torch.Tensor:
    """Compute all answers' log-probabilities under the loaded model, each rank every `world`-th pair.

    The last pair is repeated so that all ranks make the same number of calls.

    Args:
        client: verl's `TrainingWorker`.
        meta: settings that its engine gets with a batch.
        step: most pairs per call and rank.

    Returns:
        The log-probabilities, of shape (2 * len(dataset),) in float32, chosen and rejected in turn.
    """
    rank, world = distributed.get_rank(), distributed.get_world_size()
    n = -(-len(dataset) // world)
    mine = [min(turn * world + rank, len(dataset) - 1) for turn in range(n)]
    collate = dpo_pairs.PairCollator(meta["pad_mode"])
    sums: list[torch.Tensor] = []
    for start in range(0, n, step):
        numbers = mine[start : start + step]
        batch: dict[str, Any] = collate([dataset[number] for number in numbers])
        settings = {**meta, "compute_loss": False, "micro_batch_size_per_gpu": len(numbers)}
        mask = batch["loss_mask"]
        output = client.infer_batch(tu.get_tensordict(batch, settings))
        sums.append(
            dpo_pairs.answer_log_probs(output["log_probs"].cpu().float(), mask)[0].view(-1, 2)
        )
    parts: list[Any] = [None] * world
    distributed.all_gather_object(parts, torch.cat(sums))
    return torch.stack(parts, dim=1).reshape(-1, 2)[: len(dataset)].reshape(-1)
