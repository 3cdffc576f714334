"""Memory of a GPU while vLLM generates on it, and the number of sequences that fit at once."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from coding_model_project.launch.checks.machine_checks import own_gpus
from coding_model_project.launch.sizing.plan import ROLLOUT, Plan
from coding_model_project.launch.sizing.training import GIB, Part, gb, resident

CONTEXT_GB = 2.0
"""The trainer's CUDA context and NCCL's buffers beside vLLM's share. An assumption, not measured."""
ENGINE_GB = 3.0
"""vLLM's activations and CUDA graphs, a part of its share. An assumption, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The memory of one GPU during the rollout, and its capacity."""

    parts: list[Part]
    share_gb: float
    """vLLM's share of the GPU: `gpu_memory_utilization` × the GPU's memory."""
    cache_tokens: int
    """Capacity of a replica's KV cache in tokens."""
    sequences: int
    """Number of sequences of the maximum length that fit at once."""
    samples: int
    """Number of sequences that a replica generates in a step."""


def generation(config: DictConfig, plan: Plan, gpu_memory_gb: float) -> Generation:
    """Estimate the rollout's memory beside what the trainer leaves on the GPU.

    - vLLM takes `gpu_memory_utilization` × the GPU's memory, and refuses to start if less is free
      (`vllm.v1.worker.gpu_worker`). Its weights are in bf16, split over the tensor-parallel GPUs.
    - The rest of its share is the KV cache, of 2 × layers × kv heads × head size × 2 bytes per token
      (`Shape.kv_bytes`). Tensor parallelism beyond the kv heads replicates them.
    - The trainer's weights and moments stay, unless they are offloaded (`training.resident`) or the
      rollout has GPUs of its own.
    """
    rollout = OmegaConf.select(config, ROLLOUT)
    parallel = rollout.tensor_model_parallel_size
    share = rollout.gpu_memory_utilization * gpu_memory_gb
    weights = gb(2 * plan.shape.parameters / parallel)
    per_token = plan.shape.kv_bytes / min(parallel, plan.shape.kv_heads)
    cache = max(0.0, share - weights - ENGINE_GB)
    tokens = int(cache * GIB / per_token)
    length = rollout.max_model_len or plan.longest
    own = own_gpus(config)
    replicas = max(1, (own or plan.ranks) // parallel)
    return Generation(
        parts=[
            *([] if own else resident(plan)),
            Part(name="vLLM weights", gb=min(weights, share)),
            Part(name="vLLM other", gb=min(ENGINE_GB, max(0.0, share - weights))),
            Part(name="KV cache", gb=cache),
            Part(name="contexts", gb=CONTEXT_GB),
        ],
        share_gb=share,
        cache_tokens=tokens,
        sequences=min(rollout.max_num_seqs, tokens // length),
        samples=-(-config.data.train_batch_size * rollout.n // replicas),
    )
