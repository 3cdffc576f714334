"""Log-probabilities of all answers under the reference, computed once before training and cached.

The reference is the starting model, so it needs no memory beside the policy. The log-probabilities are
computed before a checkpoint is loaded, also in a resumed run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import distributed
from verl.utils import tensordict_utils as tu

from coding_model_project.runs.inputs import model_files
from coding_model_project.verl_ext.dpo.dpo_data import PairCollator, PairDataset
from coding_model_project.verl_ext.dpo.dpo_loss import answer_log_probs


def reference_path(config: DictConfig, dataset: PairDataset) -> Path:
    """Return the cache file of these tokens' log-probabilities under this model.

    Its name is a hash of all that they depend on, so a change of any part is a cache miss.
    """
    adapter = config.model.lora_adapter_path
    content = {
        "tokens": dataset.digest,
        "model": dict(model_files(config.model.path)),
        "adapter": dict(model_files(adapter)) if adapter else None,
        "numbers": [config.engine.model_dtype, config.engine.get("mixed_precision")],
        "changes": config.model.override_config,
    }
    plain = json.dumps(content, sort_keys=True, default=lambda node: str(node))
    name = hashlib.sha256(plain.encode()).hexdigest()[:32]
    return Path(config.coding.dpo.cache_dir) / f"{name}.npy"


def reference_log_probs(
    client: Any, dataset: PairDataset, meta: Mapping[str, Any], path: Path, *, pairs_per_call: int
) -> tuple[torch.Tensor, bool]:
    """Return all answers' log-probabilities under the loaded model; every rank must call it.

    Args:
        client: verl's `TrainingWorker`.
        meta: settings that its engine gets with a batch.
        pairs_per_call: most pairs per call and rank.

    Returns:
        The log-probabilities, of shape (2 * len(dataset),) in float32, chosen and rejected in turn; and
        whether they were read from `path`.
    """
    first = distributed.get_rank() == 0
    found: list[Any] = [np.load(path) if first and path.exists() else None]
    distributed.broadcast_object_list(found)
    if found[0] is not None:
        return torch.from_numpy(found[0]), True
    values = _computed(client, dataset, meta, pairs_per_call)
    if first:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")  # runs of a sweep may write at once
        with partial.open("wb") as file:
            np.save(file, values.numpy())
        partial.replace(path)
    return values, False


def _computed(
    client: Any, dataset: PairDataset, meta: Mapping[str, Any], step: int
) -> torch.Tensor:
    """Compute log-probabilities, each rank every `world`-th pair.

    The last pair is repeated so that all ranks make the same number of calls.
    """
    rank, world = distributed.get_rank(), distributed.get_world_size()
    n = -(-len(dataset) // world)
    mine = [min(turn * world + rank, len(dataset) - 1) for turn in range(n)]
    collate = PairCollator(meta["pad_mode"])
    sums: list[torch.Tensor] = []
    for start in range(0, n, step):
        numbers = mine[start : start + step]
        batch: dict[str, Any] = collate([dataset[number] for number in numbers])
        settings = {**meta, "compute_loss": False, "micro_batch_size_per_gpu": len(numbers)}
        mask = batch["loss_mask"]
        output = client.infer_batch(tu.get_tensordict(batch, settings))
        sums.append(answer_log_probs(output["log_probs"].cpu().float(), mask)[0].view(-1, 2))
    parts: list[Any] = [None] * world
    distributed.all_gather_object(parts, torch.cat(sums))
    return torch.stack(parts, dim=1).reshape(-1, 2)[: len(dataset)].reshape(-1)
