"""Merge of LoRA weights into the model's, so that any loader can load an export.

verl's `hf_model` export of a model with adapters uses PEFT's weight names. Loaders ignore such names and
load a model with random weights. `verl.model_merger` leaves the adapter in a separate folder,
`lora_adapter`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from coding_model_project.atomic import replacing
from coding_model_project.errors import CheckpointError

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
            merge(folder / "huggingface", scale=meta["lora_alpha"] / meta["r"])


def merge(export: Path, *, scale: float, adapter: Path | None = None) -> None:
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


def merge_folder(export: Path) -> None:
    """Merge the adapter that `verl.model_merger` has left in its target, if there is one.

    Raises:
        CheckpointError: as `merge`.
    """
    folder = export / _ADAPTER
    if not folder.exists():
        return
    config = json.loads((folder / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    merge(export, scale=scale, adapter=folder / "adapter_model.safetensors")
    shutil.rmtree(folder)
