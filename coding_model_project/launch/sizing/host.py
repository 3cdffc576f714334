"""The memory of a training on CPUs, and the disk space of checkpoints."""

from __future__ import annotations

import math

from omegaconf import DictConfig

from coding_model_project.launch.sizing.plan import Plan, plan_of, shape_of
from coding_model_project.launch.sizing.training import gb

_POLICY_GB, _SUPERVISED_GB = 5.1, 2.1
"""Peak of the processes of GRPO, and of SFT or DPO, without a model; measured: 4.7 and 1.5 GB."""


def needed_gb(config: DictConfig, longest: int | None = None) -> float:
    """Return the GiB of memory that must be free: `coding.min_memory_gb`, or on CPUs an estimate.

    - Bytes per parameter: the weight in `model_dtype`, and a copy when it is saved or sent; the gradient
      and two moments of a trained one; for GRPO vLLM's weight, and the one packed for its kernels.
    - Per token of a micro-batch: what autograd keeps in single precision, and the logits four times
      (logits, log-softmax, and their gradients).

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
    plan = plan_of(config)
    copies = 4 if policy else 2
    weights = plan.number_bytes * (copies * plan.shape.parameters + 3 * plan.trained)
    tokens = plan.ranks_per_node * plan.update_tokens
    if longest is not None and plan.longest:
        tokens = tokens * min(longest, plan.longest) // plan.longest
    return math.ceil(processes + gb(weights + tokens * _token_bytes(plan)))


def _token_bytes(plan: Plan) -> int:
    """Return the bytes of a token of a micro-batch at the start of backward."""
    shape = plan.shape
    deep = 1 if plan.checkpoints_activations else shape.layers
    kept = shape.kept_bytes if plan.checkpoints_activations else 0
    return 2 * (kept + deep * shape.layer_bytes) + 4 * 4 * shape.vocabulary


def checkpoint_gb(plan: Plan) -> float:
    """Return the size of one checkpoint on disk in GiB, over all ranks.

    `model` and `hf_model` each contain all weights in `model_dtype`, with a tied output layer once.
    `optimizer` contains two moments per trained parameter (`FSDPCheckpointManager.save_checkpoint`).
    """
    weights = plan.number_bytes * plan.shape.parameters
    sizes = {
        "model": weights + (plan.number_bytes * plan.shape.adapter(plan.lora_rank)),
        "hf_model": weights,
        "optimizer": 2 * plan.number_bytes * plan.trained,
    }
    return gb(sum(size for name, size in sizes.items() if name in plan.contents))


def checkpoints_gb(plan: Plan) -> float:
    """Return the maximum disk space of checkpoints in GiB; verl removes the oldest before each write."""
    return checkpoint_gb(plan) * plan.kept
