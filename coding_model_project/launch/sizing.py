"""The memory that a training on CPUs needs, by its model's shape, without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from coding_model_project import control_groups

GIB = 2**30
_BYTES = {"bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}
"""Bytes of a number by `model_dtype`; single precision otherwise."""
_POLICY_GB, _SUPERVISED_GB = 5.1, 2.1
"""Peak of the processes of GRPO, and of SFT or DPO, without a model; measured: 4.7 and 1.5 GB."""
_DENSE = ("llama", "qwen2", "qwen3")
"""Supported model types: one attention and one gated MLP in each layer."""


class Shape:
    """The shape in a dense decoder's config.json."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.hidden: int = config["hidden_size"]
        self.intermediate: int = config["intermediate_size"]
        self.layers: int = config["num_hidden_layers"]
        self.heads: int = config["num_attention_heads"]
        self.kv_heads: int = config.get("num_key_value_heads") or self.heads
        head_dim: int = config.get("head_dim") or self.hidden // self.heads
        self.attended = (self.heads + self.kv_heads) * head_dim
        """Width of the queries and the keys together."""
        self.vocabulary: int = config["vocab_size"]
        self.embeddings = 1 if config.get("tie_word_embeddings", False) else 2

    @property
    def parameters(self) -> int:
        """All weights but biases and norms."""
        layer = self.hidden * (2 * self.attended + 3 * self.intermediate)
        return self.layers * layer + self.embeddings * self.vocabulary * self.hidden

    def token_bytes(self, *, checkpointing: bool) -> int:
        """Bytes of a token of a micro-batch at the start of backward, in single precision.

        They are what autograd keeps of each layer, with gradient checkpointing of one and the inputs of
        all, and four times the logits: logits, log-softmax, their gradients.
        """
        layer = 8 * (4 * self.hidden + self.attended + 2 * self.intermediate + self.heads)
        kept = layer + 4 * self.hidden * self.layers if checkpointing else layer * self.layers
        return kept + 16 * self.vocabulary


def shape_of(config: DictConfig) -> Shape | None:
    """Return the starting model's shape; None if it is unknown here, or no dense decoder's."""
    path = OmegaConf.select(config, f"{model_section(config)}.path")
    if not path or (file := config_file(str(path))) is None:
        return None
    try:
        found = json.loads(file.read_text())
        return Shape(found) if found.get("model_type") in _DENSE else None
    except (OSError, ValueError, KeyError):
        return None  # transformers reports the fault


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


def model_section(config: DictConfig) -> str:
    """Return verl's section of the starting model."""
    return "actor_rollout_ref.model" if "actor_rollout_ref" in config else "model"


def needed_gb(config: DictConfig, longest: int | None = None) -> float:
    """Return the GiB of memory that must be free: `coding.min_memory_gb`, or on CPUs an estimate.

    Copies of the weights on a CPU: the weights, and a copy when they are saved or sent; for GRPO vLLM's,
    and those packed for its kernels; gradients and two moments, which an adapter has next to none of.

    Measured with SmolLM2-135M-Instruct: 14 GB in GRPO (15 estimated), 7.7 GB in SFT (10).

    Args:
        longest: tokens of the longest sample; the configuration's limit by default.
    """
    if (given := config.coding.min_memory_gb) is not None:
        return given
    if config.trainer.device != "cpu":
        return 0.0
    policy, model = "actor_rollout_ref" in config, model_section(config)
    processes = _POLICY_GB if policy else _SUPERVISED_GB
    if (shape := shape_of(config)) is None:
        return math.ceil(processes)
    copies = (4 if policy else 2) + (0 if OmegaConf.select(config, f"{model}.lora_rank") else 3)
    engine = "actor_rollout_ref.actor.fsdp_config" if policy else "engine"
    number_bytes = _BYTES.get(str(OmegaConf.select(config, f"{engine}.model_dtype")), 4)
    checkpointing = bool(OmegaConf.select(config, f"{model}.enable_gradient_checkpointing"))
    tokens = config.trainer.n_gpus_per_node * _micro_batch_tokens(config, longest)
    batch = tokens * shape.token_bytes(checkpointing=checkpointing)
    return math.ceil(processes + (copies * number_bytes * shape.parameters + batch) / GIB)


def _micro_batch_tokens(config: DictConfig, longest: int | None) -> int:
    """Return the maximum tokens of a micro-batch, of samples of at most so many tokens."""
    data = config.data
    if "actor_rollout_ref" in config:
        actor = config.actor_rollout_ref.actor
        limit = data.max_prompt_length + data.max_response_length
        dynamic, budget = actor.use_dynamic_bsz, actor.ppo_max_token_len_per_gpu
        micro = actor.ppo_micro_batch_size_per_gpu
    else:
        limit = data.max_length * (2 if "dpo" in config.coding else 1)
        dynamic, budget = data.use_dynamic_bsz, data.max_token_len_per_gpu
        micro = data.micro_batch_size_per_gpu
    tokens = budget if dynamic else (micro or 1) * limit
    return tokens if longest is None else tokens * min(longest, limit) // limit


def free_memory_gb() -> float:
    """Return the free memory of this host in GiB, within the limit of the container or job."""
    return min(psutil.virtual_memory().available, control_groups.free_memory()) / GIB
