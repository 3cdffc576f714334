"""verl's checkpoints: manifests, upload if `coding.checkpoints.url` is set, whole exports.

GRPO: verl creates a `CodingCheckpoints` in its TaskRunner's process and calls it after each save.
SFT: verl has no such hook; `wrap_save` adds one to its checkpoint handler.

Adapters: verl's `hf_model` export of a model with LoRA uses PEFT's weight names. Loaders ignore such
names and load a model with random weights. So the adapters are merged into the weights.

Shards: `python -m coding_model_project.verl_ext.trainers.verl_checkpoints SHARDS TARGET` merges those of
verl's FSDP engines into a Hugging Face model.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from coding_model_project.atomic import replacing
from coding_model_project.errors import CheckpointError
from coding_model_project.runs.checkpoint_store import BackgroundUploader, open_store
from coding_model_project.runs.checkpoints import (
    MANIFEST,
    Say,
    checkpoints_in,
    remove_shells,
    step_of,
    write_manifest,
)
from coding_model_project.runs.starting_model import StartingModel
from coding_model_project.verl_ext.cluster.worker_setup import load_weights_only

FINISH_TIMEOUT_S = 1800.0
"""Seconds that the end of a training waits for the upload of its last checkpoint."""


class SavedCheckpoints:
    """A handler for checkpoints that verl has written; only the first rank has one."""

    def __init__(self, config: DictConfig, say: Say) -> None:
        """Open the store, and upload the previous attempt's last checkpoint again.

        Raises:
            ConfigError: as `open_store`.
        """
        store = open_store(config, say)
        model: Any = OmegaConf.select(config, "actor_rollout_ref.model") or config.model
        self._start = StartingModel.of(cast(dict[str, Any], OmegaConf.to_container(model)))
        self._uploader = None if store is None else BackgroundUploader(store, say)
        if self._uploader is not None and config.trainer.resume_mode == "auto":
            # The previous attempt may have been killed before it uploaded its last checkpoint.
            for folder in checkpoints_in(Path(config.trainer.default_local_dir).absolute())[:1]:
                if (folder / MANIFEST).exists():
                    self._uploader.submit(folder)

    def saved(self, folder: Path, roles: Sequence[str] = ()) -> None:
        """Process a written checkpoint: complete its export, record it, remove shells, upload it.

        Args:
            roles: as in `write_manifest`.

        Raises:
            CheckpointError: its export could not be completed, it could not be recorded, or not all
                ranks' shards are on this node's disk. A failed upload is printed, and raised by `finish`.
        """
        folder = folder.absolute()
        merge_exports(folder)
        for export in (folder / "huggingface", folder / "actor" / "huggingface"):
            if export.exists():
                self._start.write_to(export)
        write_manifest(folder, roles=roles)
        remove_shells(folder.parent)
        if self._uploader is not None:
            self._uploader.submit(folder)

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Wait for uploads in progress.

        Raises:
            CheckpointError: the last checkpoint is not in the store.
        """
        if self._uploader is not None:
            self._uploader.close(timeout_s)


class CodingCheckpoints(CheckpointCallback):
    """The `trainer.checkpoint_callback_class`. The trainer calls `finish` at the end of training."""

    def __init__(self, config: DictConfig) -> None:
        """Open the store.

        Raises:
            ConfigError: as `open_store`.
        """
        super().__init__(config)
        saved = SavedCheckpoints(config, print)
        self._saved, self.finish = saved.saved, saved.finish

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, *_: Any, **__: Any
    ) -> None:
        self._saved(Path(checkpoint_dir), ["actor"])


def read_last_step() -> None:
    """Make verl's SFT trainer read the step that it resumes from at the end of the checkpoint's path.

    verl takes the path's first `global_step_N`, which may be in the name of the run's folder.
    """
    from verl.utils.checkpoint import checkpoint_handler

    checkpoint_handler.extract_step = lambda path: step_of(Path(path))


def wrap_save(ckpt_handler: Any, on_saved: Callable[[Path], None]) -> None:
    """Make verl's SFT checkpoint handler call `on_saved` after each save, on rank 0 only.

    verl's save ends in a barrier, so all ranks have written by then.
    """
    if ckpt_handler.rank != 0:
        return
    save = ckpt_handler.save_checkpoint

    def save_and_call(step: int) -> None:
        save(step=step)
        on_saved(Path(ckpt_handler.default_local_dir) / f"global_step_{step}")

    ckpt_handler.save_checkpoint = save_and_call


_META = "lora_train_meta.json"
_ADAPTER = "lora_adapter"
_INDEX = "model.safetensors.index.json"


def merge_exports(checkpoint: Path) -> None:
    """Merge the adapters in all exports of a checkpoint (its own, or its `actor`'s).

    Raises:
        CheckpointError: an adapter belongs to a layer that is not linear.
    """
    for folder in (checkpoint, checkpoint / "actor"):
        if (folder / _META).exists():
            meta = json.loads((folder / _META).read_text())
            merge_adapters(folder / "huggingface", scale=meta["lora_alpha"] / meta["r"])


def merge_adapters(export: Path, *, scale: float, adapter: Path | None = None) -> None:
    """Merge adapters into a folder's weights: W + scale · B · A, in the precision of W.

    Args:
        adapter: file of the adapter, if it is not among the weights. Without any adapter nothing happens.

    Raises:
        CheckpointError: an adapter belongs to a layer that is not linear.
    """
    from safetensors.torch import load_file, save_file

    files = sorted(export.glob("*.safetensors"))
    state: dict[str, Any] = {}
    of_file: dict[str, Path] = {}
    for file in [*files, *([adapter] if adapter else [])]:
        loaded = {_plain(name): tensor for name, tensor in load_file(file).items()}
        state |= loaded
        of_file |= dict.fromkeys(loaded, file)
    adapters = {name for name in state if ".lora_" in name}
    if not adapters:
        return
    used = set()
    for name in sorted(state.keys() - adapters):
        layer = name.removesuffix(".weight")
        a, b = f"{layer}.lora_A.weight", f"{layer}.lora_B.weight"
        if a in adapters and b in adapters:
            weight = state[name]
            update = scale * (state[b].float() @ state[a].float())
            state[name] = (weight.float() + update).to(weight.dtype)
            used |= {a, b}
    if unused := sorted(adapters - used):
        raise CheckpointError(
            f"{export}: {unused[0]} does not belong to a linear layer; only those can be merged"
        )
    kept = {name: file for name, file in of_file.items() if name not in adapters}
    for file in files:
        own = {name: state[name].contiguous() for name, of in kept.items() if of == file}
        with replacing(file) as partial:
            save_file(own, partial, metadata={"format": "pt"})
    if (export / _INDEX).exists():
        index = json.loads((export / _INDEX).read_text())
        index["weight_map"] = {name: file.name for name, file in sorted(kept.items())}
        (export / _INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _plain(name: str) -> str:
    """Return a weight's name without PEFT's additions."""
    name = name.removeprefix("base_model.model.")
    return name.replace(".base_layer.", ".").replace(".default.weight", ".weight")


def merge_left_adapter(export: Path) -> None:
    """Merge the adapter that `verl.model_merger` has left in its target, if there is one.

    Raises:
        CheckpointError: as `merge_adapters`.
    """
    folder = export / _ADAPTER
    if not folder.exists():
        return
    config = json.loads((folder / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    merge_adapters(export, scale=scale, adapter=folder / "adapter_model.safetensors")
    shutil.rmtree(folder)


def merge_shards(shards: Path, target: Path) -> None:
    """Write the model of a checkpoint's shards: merged adapters, and the files in its `huggingface`.

    Raises:
        CheckpointError: an adapter belongs to a layer that is not linear, or a shard could run code.
    """
    import torch
    from torch.distributed.tensor import DTensor
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger, merge_non_dtensor_shards

    class _Merger(FSDPModelMerger):
        """verl's merger, without its rounding of all weights to bfloat16."""

        def _load_and_merge_state_dicts(
            self, world_size: int, total_shards: int, mesh_shape: Any, mesh_dim_names: Any
        ) -> dict[str, Any]:
            start = f"{self.config.local_dir}/model_world_size_{world_size}_rank_"
            files = [f"{start}{rank}.pt" for rank in range(total_shards)]
            ranks = [torch.load(file, map_location="cpu") for file in files]
            return {name: self._merged(name, [r.pop(name) for r in ranks]) for name in [*ranks[0]]}

        def _merged(self, name: str, parts: list[Any]) -> Any:
            first = parts[0]
            if not isinstance(first, DTensor):
                return merge_non_dtensor_shards(name, parts)
            # Only the last mesh dimension shards; `ddp` before it replicates.
            return self._merge_by_placement(
                [part._local_tensor for part in parts], first.placements[-1]
            )

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
    merge_left_adapter(target)
    StartingModel(config=files, tokenizer=files).write_to(target)


if __name__ == "__main__":
    try:
        merge_shards(Path(sys.argv[1]), Path(sys.argv[2]))
    except CheckpointError as error:
        sys.exit(f"error: {error}")
