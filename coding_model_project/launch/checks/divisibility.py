"""Sizes that must divide each other; verl and vLLM assert them only once their workers are up."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.launch.checks.machine_checks import ulysses
from coding_model_project.launch.sizing.plan import shape_of
from coding_model_project.launch.sizing.shapes import Shape

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"


def heads_over_tensor_parallel(config: DictConfig) -> str | None:
    """Check that vLLM can split the heads evenly, and split or replicate the key heads."""
    size, shape = _get(config, f"{_ROLLOUT}.tensor_model_parallel_size"), shape_of(config)
    if size is None or shape is None:
        return None
    heads, kv_heads = shape.heads, shape.kv_heads
    if heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0):
        return None
    return (
        f"{_ROLLOUT}.tensor_model_parallel_size={size}: the model has {heads} attention heads and "
        f"{kv_heads} key heads, which it must divide: set it to {_fitting(shape, size)}"
    )


def heads_over_ulysses(config: DictConfig) -> str | None:
    """Check that the size divides the ranks and the heads (verl's `apply_monkey_patch` asserts both)."""
    key, size = ulysses(config)
    if size == 1:
        return None
    ranks, shape = _ranks(config), shape_of(config)
    if ranks % size:
        return f"{key}={size}: it must divide the {ranks} GPUs of the training: set it to a divisor"
    if shape is None:
        return None
    if shape.heads % size == 0 and (shape.kv_heads % size == 0 or size % shape.kv_heads == 0):
        return None
    return (
        f"{key}={size}: the model has {shape.heads} attention heads and {shape.kv_heads} key "
        f"heads, which it must divide: set it to {_fitting(shape, size)}"
    )


def samples_over_ranks(config: DictConfig) -> str | None:
    """Check that ranks split a mini-batch evenly (`TrainingWorker.train_mini_batch` asserts it)."""
    mini, n = _get(config, f"{_ACTOR}.ppo_mini_batch_size"), _get(config, f"{_ROLLOUT}.n")
    parts = _ranks(config) // ulysses(config)[1]
    if not (mini and n and parts) or mini * n % parts == 0:
        return None
    near = next(one for one in range(mini, mini + parts + 1) if one * n % parts == 0)
    return (
        f"{_ACTOR}.ppo_mini_batch_size={mini}: with {_ROLLOUT}.n={n} it makes {mini * n} samples, "
        f"which do not divide over {parts} groups of GPUs: set it to {near}"
    )


def rows_over_ranks(config: DictConfig) -> str | None:
    """Check that ranks split an SFT batch evenly: verl rounds a rank's share down silently."""
    if "engine" not in config:
        return None
    batch, parts = config.data.train_batch_size, _ranks(config) // ulysses(config)[1]
    if parts == 0 or batch % parts == 0:
        return None
    return (
        f"data.train_batch_size={batch}: it does not divide over {parts} groups of GPUs: set it to "
        f"{-(-batch // parts) * parts}"
    )


DIVISIBILITY = (heads_over_tensor_parallel, heads_over_ulysses, samples_over_ranks, rows_over_ranks)


def _get(config: DictConfig, key: str) -> Any:
    return OmegaConf.select(config, key)


def _ranks(config: DictConfig) -> int:
    trainer = _get(config, "trainer")
    return trainer.nnodes * trainer.n_gpus_per_node if trainer else 0


def _fitting(shape: Shape, size: int) -> int:
    """Return the largest smaller size that both kinds of heads allow."""
    return next(
        one
        for one in range(size - 1, 0, -1)
        if shape.heads % one == 0 and (shape.kv_heads % one == 0 or one % shape.kv_heads == 0)
    )
