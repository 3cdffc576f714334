"""A model's shape from its config.json, and the exact sizes that follow from it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DENSE = ("llama", "qwen2", "qwen3")
"""Supported model types: one attention and one gated MLP in each layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of a dense decoder. `parameters` equals transformers' count (a test compares)."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    """True if the output layer is the embedding."""
    qkv_bias: bool
    qk_norm: bool

    @property
    def queries(self) -> int:
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_heads * self.head_dim

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        attention = self.hidden * (2 * self.queries + 2 * self.keys)
        bias = self.queries + 2 * self.keys if self.qkv_bias else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        return attention + bias + norms + 3 * self.hidden * self.intermediate

    @property
    def outside(self) -> int:
        """Parameters of embedding, output and last norm, which FSDP2 gathers as one unit."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        return self.layers * self.layer + self.outside

    @property
    def largest(self) -> int:
        """Parameters of the largest tensor: the embedding, or a projection of the MLP."""
        return self.hidden * max(self.vocabulary, self.intermediate)

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers, in two-byte numbers."""
        return 2 * self.layers * self.keys * 2

    @property
    def kept_bytes(self) -> int:
        """Bytes per token that gradient checkpointing keeps: each layer's input in bf16."""
        return 2 * self.hidden * self.layers

    @property
    def layer_bytes(self) -> int:
        """Bytes per token that one layer keeps for backward, under autocast to bf16.

        The two norms keep their input in fp32 and its normalised form in bf16 (6 bytes per number each).
        The projections keep their inputs. Attention keeps queries, keys, values, output and log-sum-exp.
        The MLP keeps gate, activation, up and product (8 bytes per intermediate number). The sum equals
        what autograd saves for transformers' Qwen2 and Qwen3 layers (a test compares).
        """
        both = self.queries + self.keys
        plain = 16 * self.hidden + 4 * both + 8 * self.intermediate + 4 * self.heads + 8
        norms = 6 * both + 4 * (self.heads + self.kv_heads)
        return plain + (norms if self.qk_norm else 0)

    def adapter(self, rank: int) -> int:
        """Count the parameters of a LoRA adapter on all linear layers (`target_modules: all-linear`)."""
        widths = (
            (self.hidden, self.queries),
            (self.hidden, self.keys),
            (self.hidden, self.keys),
            (self.queries, self.hidden),
            (self.hidden, self.intermediate),
            (self.hidden, self.intermediate),
            (self.intermediate, self.hidden),
        )
        return self.layers * rank * sum(taken + given for taken, given in widths)


def of_config(config: Mapping[str, Any]) -> Shape | None:
    """Return the shape in a config.json; None for an unsupported model type."""
    kind = config.get("model_type")
    if kind not in _DENSE:
        return None
    heads = config["num_attention_heads"]
    return Shape(
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        qkv_bias=kind == "qwen2" or bool(config.get("attention_bias")),
        qk_norm=kind == "qwen3",
    )


_QWEN_1B = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
_QWEN_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
_QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
PUBLISHED = {
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": _QWEN_1B,
    "Qwen/Qwen2.5-Coder-7B-Instruct": _QWEN_7B,
    "Qwen/Qwen3-8B": _QWEN3_8B,
}
"""Published config.json values of the profiles' models, for machines without a download."""


def of_model(path: str) -> Shape | None:
    """Return the shape of a model: a folder, one of the profiles' names, or one in the hub's cache."""
    file = config_file(path)
    if file is None:
        return of_config(PUBLISHED[path]) if path in PUBLISHED else None
    try:
        return of_config(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError):
        return None  # transformers reports the fault


def largest_tensor(path: str) -> int | None:
    """Return the parameters of a model's largest tensor; None if neither shape nor weights are here.

    The shape comes first: it is the same before and after the weights are downloaded.
    """
    if shape := of_model(path):
        return shape.largest
    file = config_file(path)
    try:
        return max(_tensors(file.parent), default=None) if file else None
    except (OSError, ValueError, KeyError):
        return None  # transformers reports the fault


def _tensors(folder: Path) -> Iterator[int]:
    """Yield the parameters of each tensor of a model, from the headers of its safetensors files."""
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        yield from (math.prod(header[name]["shape"]) for name in header if name != "__metadata__")


def config_file(path: str) -> Path | None:
    """Return the config.json of a folder, or of a downloaded model of the hub; None if there is none."""
    file = Path(path).expanduser() / "config.json"
    return file if file.is_file() else cached_config(path)


def cached_config(name: str) -> Path | None:
    """Return the cached config.json of a hub model; None if it is not downloaded."""
    if len(Path(name).parts) != 2 or name.startswith((".", "~", "/")):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    return Path(found) if isinstance(found, str) else None
