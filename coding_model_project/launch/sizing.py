"""The memory and disk that a configuration needs, by its model's shape, without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from coding_model_project import control_groups
from coding_model_project.errors import ConfigError
from coding_model_project.runs.starting_model import weight_entries

GIB = 2**30
ROLLOUT = "actor_rollout_ref.rollout"
BUCKET = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
_ACTOR = "actor_rollout_ref.actor"
_BUCKET_MB = 64
"""Size of the bucket for a model whose tensors are smaller."""
_BYTES = {"bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}
"""Bytes of a number by `model_dtype`; single precision otherwise."""
_POLICY_GB, _SUPERVISED_GB = 5.1, 2.1
"""Peak of the processes of GRPO, and of SFT or DPO, without a model; measured: 4.7 and 1.5 GB."""


# ── a model's shape ───────────────────────────────────────────────────────────────────────────────

_DENSE = ("llama", "qwen2", "qwen3")
"""Supported model types: one attention and one gated MLP in each layer."""


class Shape:
    """The shape in a dense decoder's config.json. `parameters` is transformers' count, by a test."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.hidden: int = config["hidden_size"]
        self.intermediate: int = config["intermediate_size"]
        self.layers: int = config["num_hidden_layers"]
        self.heads: int = config["num_attention_heads"]
        self.kv_heads: int = config.get("num_key_value_heads") or self.heads
        self.head_dim: int = config.get("head_dim") or self.hidden // self.heads
        self.vocabulary: int = config["vocab_size"]
        self.tied: bool = config.get("tie_word_embeddings", False)
        """True if the output layer is the embedding."""
        self.qkv_bias = config["model_type"] == "qwen2" or bool(config.get("attention_bias"))
        self.qk_norm = config["model_type"] == "qwen3"

    @property
    def queries(self) -> int:
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        attention = self.hidden * (2 * self.queries + 2 * self.keys)
        bias = self.queries + 2 * self.keys if self.qkv_bias else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + bias + norms + 3 * self.hidden * self.intermediate
        outside = self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden
        return self.layers * layer + outside

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
        attention = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.keys)
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))


_FIELDS = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "vocab_size", "tie_word_embeddings"),
)
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    name: dict(zip(_FIELDS, values, strict=True))
    for name, *values in (
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct", "qwen2", 1536, 8960, 28, 12, 2, 151936, True),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2", 3584, 18944, 28, 28, 4, 152064, False),
        ("Qwen/Qwen3-8B", "qwen3", 4096, 12288, 36, 32, 8, 151936, False),
    )
}
"""Published config.json values of the profiles' models, for machines without a download."""


def of_config(config: Mapping[str, Any]) -> Shape | None:
    """Return the shape in a config.json; None for an unsupported model type."""
    return Shape(config) if config.get("model_type") in _DENSE else None


def shape_of(config: DictConfig) -> Shape | None:
    """Return the starting model's shape; None if it is unknown here."""
    path = OmegaConf.select(config, f"{model_section(config)}.path")
    return _of_model(str(path)) if path else None


def _of_model(path: str) -> Shape | None:
    """Return the shape of a model: a folder, one of the profiles' names, or one in the hub's cache."""
    file = config_file(path)
    if file is None:
        return of_config(PUBLISHED[path]) if path in PUBLISHED else None
    try:
        return of_config(json.loads(file.read_text()))
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


# ── a training's values ───────────────────────────────────────────────────────────────────────────


class Training:
    """The values of a training by verl's FSDP2 engine that its memory depends on, for all recipes.

    Args:
        config: composed by GRPO, repair, harbor, SFT or DPO.

    Raises:
        ConfigError: the model's shape is unknown here.
    """

    def __init__(self, config: DictConfig) -> None:
        def get(key: str, default: Any = None) -> Any:
            value = OmegaConf.select(config, key)
            return default if value is None else value

        policy = "actor_rollout_ref" in config
        model, engine = model_section(config), _engine(config)
        shape = shape_of(config)
        if shape is None:
            raise ConfigError(
                f"{model}.path={get(f'{model}.path')}: no config.json of a dense Llama, Qwen2 or Qwen3 "
                "model here: give a folder, or download the model first"
            )
        self.shape = shape
        self.ranks_per_node: int = config.trainer.n_gpus_per_node
        ranks = config.trainer.nnodes * self.ranks_per_node
        size = get(f"{engine}.fsdp_size", -1)
        self.shards: int = ranks if size <= 0 else min(size, ranks)
        """Ranks that share one copy of the weights (`fsdp_size`)."""
        self.number_bytes = _number_bytes(config)
        """Bytes per trained weight."""
        self.lora_rank: int = get(f"{model}.lora_rank", 0)
        if policy:
            self.longest: int = config.data.max_prompt_length + config.data.max_response_length
            budget, dynamic = (
                f"{_ACTOR}.ppo_max_token_len_per_gpu",
                get(f"{_ACTOR}.use_dynamic_bsz"),
            )
            micro = f"{_ACTOR}.ppo_micro_batch_size_per_gpu"
        else:
            self.longest = config.data.max_length * (2 if "dpo" in config.coding else 1)
            budget, dynamic = "data.max_token_len_per_gpu", config.data.use_dynamic_bsz
            micro = "data.micro_batch_size_per_gpu"
        self.update_key = budget if dynamic else micro
        """The key that sets `update_tokens`."""
        self.update_tokens: int = max(get(budget), 1) if dynamic else get(micro, 1) * self.longest
        """Maximum tokens of a micro-batch on one GPU."""
        self.checkpoints_activations = bool(get(f"{model}.enable_gradient_checkpointing"))
        self.param_offload = bool(get(f"{engine}.param_offload"))
        self.optimizer_offload = bool(get(f"{engine}.optimizer_offload"))
        checkpoint = f"{_ACTOR}.checkpoint" if policy else "checkpoint"
        self.contents: Sequence[str] = get(f"{checkpoint}.save_contents", ())
        """Parts of a checkpoint."""
        kept = get("trainer.max_actor_ckpt_to_keep") or get("trainer.max_ckpt_to_keep")
        self.kept: int = kept or 1
        """Number of checkpoints on disk at once."""

    @property
    def trained(self) -> int:
        """Parameters with gradients and optimiser states."""
        return self.shape.adapter(self.lora_rank) if self.lora_rank else self.shape.parameters

    def states(self, copies: int) -> int:
        """Bytes of so many copies of the weights, and of the trained ones' gradients and two moments."""
        return self.number_bytes * (copies * self.shape.parameters + 3 * self.trained)

    def token_bytes(self, width: int) -> int:
        """Bytes of a token of a micro-batch at the start of backward.

        They are what autograd keeps, and the logits four times: logits, log-softmax, their gradients.

        Args:
            width: bytes per number of an activation.
        """
        deep = 1 if self.checkpoints_activations else self.shape.layers
        kept = self.shape.kept_bytes if self.checkpoints_activations else 0
        activations = kept + deep * self.shape.layer_bytes
        return width * activations // 2 + 4 * width * self.shape.vocabulary

    def update_gb(self, tokens: int | None = None) -> float:
        """Return the GiB of an update's states and micro-batch on a GPU, by default of `update_tokens`.

        Contexts, buffers and what FSDP2 gathers come on top; with flash-attn fewer logits are kept.
        """
        batch = (self.update_tokens if tokens is None else tokens) * self.token_bytes(2)
        return (self.states(1) / self.shards + batch) / GIB

    @property
    def resident_gb(self) -> float:
        """GiB of weights and moments that stay on a GPU between steps."""
        weights = 0 if self.param_offload else self.shape.parameters
        moments = 0 if self.optimizer_offload else 2 * self.trained
        return self.number_bytes * (weights + moments) / self.shards / GIB

    @property
    def checkpoint_gb(self) -> float:
        """GiB of one checkpoint on disk, over all ranks.

        `model` and `hf_model` each contain all weights in `model_dtype`, with a tied output layer once.
        `optimizer` contains two moments per trained parameter (`FSDPCheckpointManager.save_checkpoint`).
        """
        numbers = {
            "model": self.shape.parameters + self.shape.adapter(self.lora_rank),
            "hf_model": self.shape.parameters,
            "optimizer": 2 * self.trained,
        }
        return self.number_bytes * sum(numbers.get(name, 0) for name in self.contents) / GIB


def _number_bytes(config: DictConfig) -> int:
    return _BYTES.get(str(OmegaConf.select(config, f"{_engine(config)}.model_dtype")), 4)


def model_section(config: DictConfig) -> str:
    """Return verl's section of the starting model."""
    return "actor_rollout_ref.model" if "actor_rollout_ref" in config else "model"


def _engine(config: DictConfig) -> str:
    """Return verl's section of the training engine."""
    return f"{_ACTOR}.fsdp_config" if "actor_rollout_ref" in config else "engine"


# ── the host's memory ─────────────────────────────────────────────────────────────────────────────


def needed_gb(config: DictConfig, longest: int | None = None) -> float:
    """Return the GiB of memory that must be free: `coding.min_memory_gb`, or on CPUs an estimate.

    Copies of the weights on a CPU: the weights, and a copy when they are saved or sent; for GRPO vLLM's,
    and those packed for its kernels. Activations are in single precision.

    Measured with SmolLM2-135M-Instruct: 14 GB in GRPO (15 estimated), 7.7 GB in SFT (10).

    Args:
        longest: tokens of the longest sample; the configuration's limit by default.
    """
    if (given := config.coding.min_memory_gb) is not None:
        return given
    if config.trainer.device != "cpu":
        return 0.0
    policy = "actor_rollout_ref" in config
    processes = _POLICY_GB if policy else _SUPERVISED_GB
    if shape_of(config) is None:
        return math.ceil(processes)
    training = Training(config)
    tokens = training.ranks_per_node * training.update_tokens
    if longest is not None and training.longest:
        tokens = tokens * min(longest, training.longest) // training.longest
    states = training.states(4 if policy else 2)
    return math.ceil(processes + (states + tokens * training.token_bytes(4)) / GIB)


def free_memory_gb() -> float:
    """Return the free memory of this host in GiB, within the limit of the container or job."""
    return min(psutil.virtual_memory().available, control_groups.free_memory()) / GIB


# ── the bucket in which verl sends weights to the rollout ─────────────────────────────────────────


def bucket_mb(config: DictConfig) -> int:
    """Return the size in MiB that holds the model's largest tensor; 0 if any size works, or unknown here.

    Without an accelerator verl copies tensors, in the trainer's `model_dtype`, into a bucket in shared
    memory, and asserts in the first sync that each fits. CUDA sends a larger tensor by itself
    (`verl.workers.rollout.vllm_rollout.bucketed_weight_transfer`).
    """
    path = OmegaConf.select(config, "actor_rollout_ref.model.path")
    if path is None or config.trainer.device != "cpu":
        return 0
    return -(-(_largest_tensor(str(path)) or 0) * _number_bytes(config) // 2**20)


def fill_bucket(config: DictConfig) -> None:
    """Set the bucket's size to what the model needs, unless it is set."""
    if OmegaConf.select(config, BUCKET) is None:
        OmegaConf.update(config, BUCKET, max(_BUCKET_MB, bucket_mb(config)))


def _largest_tensor(path: str) -> int | None:
    """Return the parameters of a model's largest tensor; None if neither shape nor weights are here.

    The shape comes first: it is the same before and after the weights are downloaded.
    """
    if shape := _of_model(path):  # the embedding, or a projection of the MLP
        return shape.hidden * max(shape.vocabulary, shape.intermediate)
    file = config_file(path)
    try:
        weights = weight_entries(file.parent) if file else {}
        return max((math.prod(one["shape"]) for one in weights.values()), default=None)
    except (OSError, ValueError, KeyError):
        return None  # transformers reports the fault
