"""A node's host memory, and the disk space of checkpoints."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from coding_model_project.launch.sizing.plan import ROLLOUT, Plan
from coding_model_project.launch.sizing.training import Part, gb

PROCESS_GB = 1.0
"""A Ray actor that imports torch and verl: 7.6 GB measured in a CPU run, over its eight processes."""
CUDA_PROCESS_GB = 3.0
"""A process with a CUDA context (trainer ranks, vLLM engines). An assumption, not measured."""
PROGRAM_GB = 0.1
"""One judged program; each core runs one. An assumption, not measured."""
_TOKEN_BYTES = 60
"""Bytes per token in TransferQueue: ids, masks, positions, log-probabilities and advantages."""


def host_memory(config: DictConfig, plan: Plan, cpus: int) -> list[Part]:
    """Estimate a node's host memory at its peak, while the model is loaded or saved.

    - Loading: rank 0 builds the whole model on the host in `model_dtype`. With tied embeddings, all
      ranks do (`get_init_weight_context_manager`). Saving gathers it on rank 0 again.
    - Offload: the weight and moment shards of all ranks of the node.
    - With an adapter, a sleeping vLLM keeps its weights on the host (sleep level 1).
    """
    whole = plan.number_bytes * plan.shape.parameters
    copies = plan.ranks_per_node if plan.shape.tied else 1
    per_rank = plan.number_bytes * plan.shape.parameters / plan.shards
    moments = 2 * plan.number_bytes * plan.trained / plan.shards
    offloaded = plan.ranks_per_node * (
        (per_rank if plan.param_offload else 0) + (moments if plan.optimizer_offload else 0)
    )
    parts = [
        Part(name="model while loading", gb=gb(whole * copies)),
        Part(name="offloaded", gb=gb(offloaded)),
        Part(name="ranks", gb=CUDA_PROCESS_GB * plan.ranks_per_node),
    ]
    rollout = OmegaConf.select(config, ROLLOUT)
    if rollout is None:
        return parts
    asleep = 2 * plan.shape.parameters * plan.ranks_per_node / rollout.tensor_model_parallel_size
    adapter = plan.lora_rank and not OmegaConf.select(config, "actor_rollout_ref.model.lora.merge")
    units = config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    actors = rollout.agent.num_workers + config.reward.num_workers + units + 3
    samples = config.data.train_batch_size * rollout.n * plan.longest * _TOKEN_BYTES
    return [
        *parts,
        Part(name="vLLM asleep", gb=gb(asleep) if adapter else 0.0),
        Part(name="vLLM processes", gb=CUDA_PROCESS_GB * plan.ranks_per_node),
        Part(name="actors", gb=PROCESS_GB * actors),
        Part(name="samples", gb=gb(samples)),
        Part(name="judged programs", gb=PROGRAM_GB * (config.coding.sandbox.workers or cpus)),
    ]


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
