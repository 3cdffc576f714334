"""Merge of the shards of verl's FSDP engines into a Hugging Face model, without rounding.

python -m coding_model_project.verl_ext.trainers.merger SHARDS TARGET
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger, merge_non_dtensor_shards

from coding_model_project.errors import CheckpointError
from coding_model_project.runs.starting_model import StartingModel
from coding_model_project.verl_ext.trainers.adapters import merge_folder
from coding_model_project.verl_ext.trainers.weights_only import load_weights_only


class _Merger(FSDPModelMerger):
    """verl's merger, which rounds all weights to bfloat16, without the rounding."""

    def _load_and_merge_state_dicts(
        self, world_size: int, total_shards: int, mesh_shape: Any, mesh_dim_names: Any
    ) -> dict[str, torch.Tensor]:
        folder = self.config.local_dir
        shards = [
            torch.load(
                f"{folder}/model_world_size_{world_size}_rank_{rank}.pt",
                map_location="cpu",
            )
            for rank in range(total_shards)
        ]
        return {
            name: self._merged(name, [shard.pop(name) for shard in shards])
            for name in list(shards[0])
        }

    def _merged(self, name: str, parts: list[Any]) -> torch.Tensor:
        first = parts[0]
        if not isinstance(first, DTensor):
            return merge_non_dtensor_shards(name, parts)
        # Only the last mesh dimension shards; `ddp` before it replicates.
        return self._merge_by_placement(
            [part._local_tensor for part in parts], first.placements[-1]
        )


def merge(shards: Path, target: Path) -> None:
    """Write the model of a checkpoint's shards: merged adapters, and the files in its `huggingface`.

    Raises:
        CheckpointError: an adapter belongs to a layer that is not linear, or a shard could run code.
    """
    load_weights_only()
    target.mkdir(parents=True, exist_ok=True)
    files = shards / "huggingface"
    merger = _Merger(
        ModelMergerConfig(
            operation="merge",
            backend="fsdp",
            local_dir=str(shards),
            target_dir=str(target),
            hf_model_config_path=str(files),
        )
    )
    merger.merge_and_save()
    merger.cleanup()
    merge_folder(target)
    StartingModel(config=files, tokenizer=files).write_to(target)


if __name__ == "__main__":
    try:
        merge(Path(sys.argv[1]), Path(sys.argv[2]))
    except CheckpointError as error:
        sys.exit(f"error: {error}")
