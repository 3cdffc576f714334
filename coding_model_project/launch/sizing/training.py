"""Memory of a GPU while it trains: verl 0.9.1's FSDP2 engine (`verl/workers/engine/fsdp`)."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.launch.sizing.plan import Plan

GIB = 2**30
CONTEXT_GB = 4.0
"""The CUDA contexts of trainer and vLLM, NCCL's buffers, a sleeping vLLM's graphs, and fragmentation. An
assumption, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A share of the memory."""

    name: str
    gb: float


def gb(size: float) -> float:
    return size / GIB


def resident(plan: Plan) -> list[Part]:
    """Return the memory that stays on the GPU between steps, unless it is offloaded.

    Weights are sharded in `model_dtype` (single precision by default), and Adam's two moments in the
    same type (`FSDPEngine._build_module`, `build_optimizer`). `optimizer_zero_grad` frees gradients.
    """
    weights = plan.number_bytes * plan.shape.parameters / plan.shards
    moments = 2 * plan.number_bytes * plan.trained / plan.shards
    return [
        Part(name="weights", gb=0.0 if plan.param_offload else gb(weights)),
        Part(name="optimiser", gb=0.0 if plan.optimizer_offload else gb(moments)),
    ]


def update(plan: Plan) -> list[Part]:
    """Estimate a GPU's memory at the start of backward, or in the optimiser's step if that is more.

    - Weights, gradients, moments: `number_bytes` × (1, 1 and 2) per parameter, over the shards. The
      optimiser's step takes the size of the gradients once more (`foreach`), after activations are freed.
    - Gathered: FSDP2 gathers in bf16 everything outside the layers, and two layers at a time (it
      prefetches the next one). It reduces one unit's gradients in fp32 from bf16 (6 bytes).
    - Activations: the inputs of all layers, and one layer's own (`Shape.layer_bytes`), or those of all
      layers without gradient checkpointing. flash and sdpa kernels keep no score matrix. The mask of
      packed samples, which sdpa needs, takes a byte per pair of tokens.
    - Logits: see `logit_bytes`.
    """
    shape, tokens = plan.shape, plan.update_tokens
    sharded = plan.number_bytes / plan.shards
    gathered = 2 * shape.outside + 4 * shape.layer + 6 * shape.layer
    deep = 1 if plan.checkpoints_activations else shape.layers
    kept = shape.kept_bytes if plan.checkpoints_activations else 0
    mask = 0 if plan.flash else tokens**2
    step = sharded * plan.trained
    backward = [
        Part(name="gathered layers", gb=gb(gathered)),
        Part(name="activations", gb=gb(tokens * (kept + deep * shape.layer_bytes) + mask)),
        Part(name="logits", gb=gb(tokens * shape.vocabulary * logit_bytes(plan))),
    ]
    stepping = [Part(name="optimiser's step", gb=gb(step))]
    larger = max(backward, stepping, key=lambda parts: sum(part.gb for part in parts))
    return [
        Part(name="weights", gb=gb(sharded * shape.parameters)),
        Part(name="gradients", gb=gb(sharded * plan.trained)),
        Part(name="optimiser", gb=gb(2 * sharded * plan.trained)),
        *larger,
        Part(name="contexts", gb=CONTEXT_GB),
    ]


def logit_bytes(plan: Plan) -> int:
    """Return bytes per logit in the update.

    The output layer returns bf16 (2). flash-attn's cross-entropy writes the gradient in place. Without
    flash-attn, `logprobs_from_logits_v2` keeps log-softmax rows, which autocast computes in fp32 (4).
    A temperature other than 1 makes a scaled copy, and its gradient another (4). Entropy in the loss
    prevents the in-place gradient, and has its own (4).
    """
    return (
        2
        + (0 if plan.flash else 4)
        + (4 if plan.scales_logits else 0)
        + (4 if plan.with_entropy else 0)
    )


def log_probs(plan: Plan, tokens: int) -> list[Part]:
    """Estimate a GPU's memory while it computes log-probabilities of samples, without gradients.

    Logits are in bf16, and exist twice if they are scaled. The entropy's sum is compiled into one kernel
    (`use_torch_compile`), which keeps nothing.
    """
    shape = plan.shape
    mask = 0 if plan.flash else tokens**2
    return [
        *resident(plan),
        Part(name="gathered layers", gb=gb(2 * shape.outside + 4 * shape.layer)),
        Part(name="activations", gb=gb(tokens * shape.layer_bytes + mask)),
        Part(name="logits", gb=gb(tokens * shape.vocabulary * (4 if plan.scales_logits else 2))),
        Part(name="contexts", gb=CONTEXT_GB),
    ]


def total(parts: list[Part]) -> float:
    return sum(part.gb for part in parts)
