"""The values of a configuration that its memory depends on, under the same names for all recipes."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.launch.sizing.shapes import Shape, of_model

_ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
_BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A training of a model by verl's FSDP2 engine on `ranks` GPUs."""

    shape: Shape
    ranks: int
    ranks_per_node: int
    shards: int
    """Ranks that share one copy of the weights (`fsdp_size`)."""
    number_bytes: int
    """Bytes per trained weight: 4 in single precision."""
    lora_rank: int
    update_tokens: int
    """Maximum tokens of a micro-batch on one GPU."""
    update_key: str
    """The key that sets `update_tokens`."""
    longest: int
    """Tokens of the longest sample; a micro-batch contains at least one sample."""
    checkpoints_activations: bool
    flash: bool
    scales_logits: bool
    """True if the sampling temperature differs from 1."""
    with_entropy: bool
    param_offload: bool
    optimizer_offload: bool
    contents: tuple[str, ...]
    """Parts of a checkpoint (verl's `save_contents`)."""
    kept: int
    """Number of checkpoints on disk at once."""

    @property
    def trained(self) -> int:
        """Parameters with gradients and optimiser states."""
        return self.shape.adapter(self.lora_rank) if self.lora_rank else self.shape.parameters


def plan_of(config: DictConfig) -> Plan:
    """Read a composed configuration of GRPO, repair, harbor, SFT or DPO.

    Raises:
        ConfigError: the model's shape is unknown here.
    """
    policy = "actor_rollout_ref" in config
    model, engine = _model(config), _engine(config)
    shape = shape_of(config)
    if shape is None:
        path = OmegaConf.select(config, f"{model}.path")
        raise ConfigError(
            f"{model}.path={path}: no config.json of a dense Llama, Qwen2 or Qwen3 model here: give a "
            "folder, or download the model first"
        )

    def get(key: str, default: Any = None) -> Any:
        value = OmegaConf.select(config, key)
        return default if value is None else value

    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    size = get(f"{engine}.fsdp_size", -1)
    longest, tokens, key = _tokens(config, get)
    checkpoint = f"{_ACTOR}.checkpoint" if policy else "checkpoint"
    return Plan(
        shape=shape,
        ranks=ranks,
        ranks_per_node=config.trainer.n_gpus_per_node,
        shards=ranks if size <= 0 else min(size, ranks),
        number_bytes=number_bytes(config),
        lora_rank=get(f"{model}.lora_rank", 0),
        update_tokens=tokens,
        update_key=key,
        longest=longest,
        checkpoints_activations=bool(get(f"{model}.enable_gradient_checkpointing", False)),
        flash=importlib.util.find_spec("flash_attn") is not None,
        scales_logits=policy and get(f"{ROLLOUT}.temperature", 1.0) != 1.0,
        with_entropy=bool(get(f"{_ACTOR}.calculate_entropy") or get(f"{_ACTOR}.entropy_coeff")),
        param_offload=bool(get(f"{engine}.param_offload", False)),
        optimizer_offload=bool(get(f"{engine}.optimizer_offload", False)),
        contents=tuple(get(f"{checkpoint}.save_contents", ())),
        kept=get("trainer.max_actor_ckpt_to_keep") or get("trainer.max_ckpt_to_keep") or 1,
    )


def shape_of(config: DictConfig) -> Shape | None:
    """Return the starting model's shape; None if it is unknown here."""
    path = OmegaConf.select(config, f"{_model(config)}.path")
    return of_model(str(path)) if path else None


def number_bytes(config: DictConfig) -> int:
    """Return the bytes per trained weight."""
    return _BYTES.get(str(OmegaConf.select(config, f"{_engine(config)}.model_dtype")), 4)


def _model(config: DictConfig) -> str:
    """Return verl's section of the starting model."""
    return "actor_rollout_ref.model" if "actor_rollout_ref" in config else "model"


def _engine(config: DictConfig) -> str:
    """Return verl's section of the training engine."""
    return f"{_ACTOR}.fsdp_config" if "actor_rollout_ref" in config else "engine"


def _tokens(config: DictConfig, get: Any) -> tuple[int, int, str]:
    """Return the tokens of the longest sample and of the largest micro-batch, and the latter's key."""
    if "actor_rollout_ref" in config:
        longest = config.data.max_prompt_length + config.data.max_response_length
        budget, dynamic = f"{_ACTOR}.ppo_max_token_len_per_gpu", get(f"{_ACTOR}.use_dynamic_bsz")
        micro = f"{_ACTOR}.ppo_micro_batch_size_per_gpu"
    else:
        answers = 2 if "dpo" in config.coding else 1
        longest = config.data.max_length * answers
        budget, dynamic = "data.max_token_len_per_gpu", config.data.use_dynamic_bsz
        micro = "data.micro_batch_size_per_gpu"
    if dynamic:
        return longest, max(get(budget), 1), budget
    return longest, get(micro, 1) * longest, micro
