"""verl's FSDP2 engines on a CPU (verl.workers.engine.EngineRegistry, a public extension point)."""

from __future__ import annotations

from typing import Any

import torch
from verl.utils import tensordict_utils
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import (
    FSDPEngineWithLMHead,
    FSDPEngineWithValueHead,
)

from coding_model_project.verl_ext.cpu import packed_attention
from coding_model_project.verl_ext.cpu.packing import Pack, pack

_WHOLE_LOGITS = ("distillation_use_topk", "calculate_sum_pi_squared", "use_fused_kernels")
"""Keys of a micro-batch for which verl needs the logits of all tokens."""


class _OnCPU:
    """A mixin that packs micro-batches, and builds the reference model without pinned memory."""

    engine_config: Any
    module: Any
    compute_entropy_from_logits: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        # CPUOffloadPolicy(pin_memory=True) needs an accelerator, and the weights are in CPU memory.
        forward_only = self.engine_config.forward_only
        self.engine_config.forward_only = False
        try:
            return super()._build_fsdp_module(module)  # pyrefly: ignore[missing-attribute]
        finally:
            self.engine_config.forward_only = forward_only

    def _packs(self, micro_batch: Any) -> bool:
        packs = tensordict_utils.get_non_tensor_data(micro_batch, "use_remove_padding", True)
        return bool(packs) and self.module.config._attn_implementation == packed_attention.NAME

    def _pack(self, micro_batch: Any, share: bool) -> Pack | None:
        """Return the micro-batch's pack and make the attention use it; None with another attention."""
        packed = None
        if self._packs(micro_batch):
            ids = micro_batch["input_ids"]
            packed = pack(ids.values(), ids.offsets().tolist(), _prompts(micro_batch), share)
        packed_attention.use(packed)
        return packed


class CPUEngineWithLMHead(_OnCPU, FSDPEngineWithLMHead):
    """A language model sharded by FSDP2 over gloo, which computes the logits of responses only."""

    _checked = False

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        parent: Any = super()
        inputs, arguments = parent.prepare_model_inputs(micro_batch)
        whole = any(
            tensordict_utils.get_non_tensor_data(micro_batch, key, False) for key in _WHOLE_LOGITS
        )
        if self._packs(micro_batch) and not self._checked:
            packed_attention.check(self.module)
            self._checked = True
        packed = self._pack(micro_batch, share=not whole)
        if packed is not None and not whole:
            inputs["input_ids"] = inputs["input_ids"][:, packed.tokens]
            inputs["position_ids"] = inputs["position_ids"][..., packed.tokens]
            inputs["logits_to_keep"] = packed.kept
            arguments["pack"] = packed
        return inputs, arguments

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, Any]:
        """Return log-probabilities, and entropies if requested, of all tokens; 0 for a prompt's."""
        packed: Pack | None = output_args.get("pack")
        if packed is None:
            parent: Any = super()
            return parent.prepare_model_outputs(
                output, output_args, micro_batch, logits_processor_func
            )
        logits = output.logits.squeeze(0)
        if len(logits) != len(packed.kept):  # the model has no `logits_to_keep`
            logits = logits[packed.kept]
        logits = logits.float()
        if not output_args["temperature_is_one"]:
            temperature = output_args["temperature_rmpad"][packed.tokens[packed.kept]]
            logits = logits / temperature.unsqueeze(-1)
        ids = micro_batch["input_ids"]

        def of_all(values: torch.Tensor) -> torch.Tensor:
            whole = values.new_zeros(len(ids.values())).index_copy(0, packed.predicting, values)
            return torch.nested.nested_tensor_from_jagged(whole, ids.offsets())

        labels = ids.values()[packed.predicting + 1]
        log_probs = logits[packed.rows, labels] - logits.logsumexp(dim=-1)[packed.rows]
        outputs = {"log_probs": of_all(log_probs)}
        if tensordict_utils.get_non_tensor_data(micro_batch, "calculate_entropy", False):
            entropy = self.compute_entropy_from_logits(logits)
            outputs["entropy"] = of_all(entropy[packed.rows])
        return outputs


class CPUEngineWithValueHead(_OnCPU, FSDPEngineWithValueHead):
    """A value model sharded by FSDP2 over gloo."""

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        parent: Any = super()
        self._pack(micro_batch, share=False)
        return parent.prepare_model_inputs(micro_batch)


def _prompts(micro_batch: Any) -> list[int]:
    """Return the number of each sample's tokens before the first that is trained on."""
    if "responses" in micro_batch:
        lengths = micro_batch["input_ids"].offsets().diff()
        return (lengths - micro_batch["responses"].offsets().diff()).tolist()
    return [
        int(mask.nonzero()[0]) if mask.any() else len(mask) for mask in micro_batch["loss_mask"]
    ]


def register() -> None:
    packed_attention.register()
    EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=["cpu"])(
        CPUEngineWithLMHead
    )
    EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device=["cpu"])(
        CPUEngineWithValueHead
    )
