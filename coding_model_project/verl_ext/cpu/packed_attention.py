"""Attention of packed samples with PyTorch's kernels, which take no packed rows on a CPU.

transformers' own `sdpa` computes a packed row with a mask, at a cost that grows with the square of the
micro-batch's tokens.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from coding_model_project.verl_ext.cpu.packing import Pack, pack

NAME = "packed_sdpa"
"""Value of `attn_implementation` that selects it."""

_PROBES = (
    (6, [7, 8, 9, 10, 11, 12, 13, 14]),
    (6, [7, 8, 9, 10, 11, 12, 21, 22, 23]),
    (3, [31, 32, 33, 34, 35]),
)
"""Samples of `check`, each with its prompt's length; two share a prompt."""

_pack: Pack | None = None


def use(pack: Pack | None) -> None:
    """Set the pack of the next forward pass and of its backward pass, which may recompute layers."""
    global _pack
    _pack = pack


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention's output, (1, M, heads, head_dim), as transformers' attention functions do.

    Args:
        query: (1, heads, M, head_dim); key and value with as many heads or fewer.
        sliding_window: number of tokens that a token sees, itself included.

    Raises:
        ValueError: there is no pack, or the model's attention has features that this one lacks.
    """
    if _pack is None or sum(segment.length for segment in _pack.segments) != query.shape[2]:
        raise ValueError(f"attn_implementation={NAME} needs model.use_remove_padding=true")
    if lacking := [name for name in ("softcap", "s_aux") if more.get(name) is not None]:
        raise ValueError(
            f"attn_implementation={NAME}: the model's attention has {lacking[0]}, which it lacks; set "
            "model.override_config.attn_implementation=eager and model.use_remove_padding=false"
        )
    segments = _pack.segments
    lengths = [segment.length for segment in segments]
    groups = query.shape[1] // key.shape[1]
    queries = query.split(lengths, dim=2)
    keys, values = (repeat_kv(one, groups).split(lengths, dim=2) for one in (key, value))
    outputs: list[torch.Tensor] = []
    for i, segment in enumerate(segments):
        own_key, own_value, before = keys[i], values[i], 0
        if segment.prompt is not None:
            before = lengths[segment.prompt]
            own_key = torch.cat([keys[segment.prompt], own_key], dim=2)
            own_value = torch.cat([values[segment.prompt], own_value], dim=2)
        total = before + segment.length
        masked = before > 0 or (sliding_window is not None and sliding_window < total)
        outputs.append(
            scaled_dot_product_attention(
                queries[i],
                own_key,
                own_value,
                attn_mask=_mask(segment.length, total, sliding_window) if masked else None,
                is_causal=not masked,
                dropout_p=dropout,
                scale=scaling,
            )
        )
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _mask(length: int, total: int, window: int | None) -> torch.Tensor:
    """Return a mask (length, total): the last `length` of `total` tokens see those before them."""
    visible = torch.ones(length, total, dtype=torch.bool).tril(total - length)
    return visible if window is None else visible.triu(total - length - window + 1)


@torch.no_grad()
def check(model: Any) -> None:
    """Check that a model gives packed samples the log-probabilities of separate ones.

    Where layers besides the attention mix tokens (convolutions, recurrences), or the attention is of
    a kind unknown here, samples would read each other's tokens, without an error.

    Raises:
        ValueError: it does not.
    """
    prompts = [n for n, _ in _PROBES]
    samples = [torch.tensor(tokens) for _, tokens in _PROBES]
    packed = pack(torch.cat(samples), [0, *accumulate(map(len, samples))], prompts, share=True)
    positions = torch.cat([torch.arange(len(sample)) for sample in samples])

    def log_probs(ids: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        output = model(input_ids=ids[None], position_ids=at[None], use_cache=False)
        return output.logits[0].float().log_softmax(-1)

    training = model.training
    model.eval()
    use(packed)
    together = log_probs(torch.cat(samples)[packed.tokens], positions[packed.tokens])
    model.set_attn_implementation("eager")
    apart = [
        log_probs(sample, torch.arange(len(sample)))[n - 1 : -1]
        for n, sample in zip(prompts, samples, strict=True)
    ]
    model.set_attn_implementation(NAME)
    model.train(training)
    difference = float((together[packed.kept][packed.rows] - torch.cat(apart)).abs().max())
    if difference > (1e-3 if next(model.parameters()).dtype == torch.float32 else 0.1):
        raise ValueError(
            f"attn_implementation={NAME}: packed samples of this model ({model.config.model_type}) would "
            f"read each other's tokens (log-probabilities differ by {difference:.2g}); set "
            "model.override_config.attn_implementation=sdpa and model.use_remove_padding=false"
        )


def register() -> None:
    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
