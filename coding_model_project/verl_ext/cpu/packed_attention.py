"""Attention of packed samples with PyTorch's kernels, which take no packed rows on a CPU.

transformers' own `sdpa` computes a packed row with a mask, at a cost that grows with the square of the
micro-batch's tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from coding_model_project.verl_ext.cpu.packing import Pack

NAME = "packed_sdpa"
"""Value of `attn_implementation` that selects it."""

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


def register() -> None:
    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
