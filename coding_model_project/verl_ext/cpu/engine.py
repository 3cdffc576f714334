"""verl's FSDP2 engines on a CPU (verl.workers.engine.EngineRegistry, a public extension point)."""

from __future__ import annotations

from typing import Any

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import (
    FSDPEngineWithLMHead,
    FSDPEngineWithValueHead,
)


class _WithoutPinnedOffload:
    """A mixin that builds the reference model without CPUOffloadPolicy(pin_memory=True).

    Pinning needs an accelerator, and the weights are already in CPU memory.
    """

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        forward_only = self.engine_config.forward_only
        self.engine_config.forward_only = False
        try:
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config.forward_only = forward_only


class CPUEngineWithLMHead(_WithoutPinnedOffload, FSDPEngineWithLMHead):
    """A language model sharded by FSDP2 over gloo."""


class CPUEngineWithValueHead(_WithoutPinnedOffload, FSDPEngineWithValueHead):
    """A value model sharded by FSDP2 over gloo."""


def register() -> None:
    EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=["cpu"])(
        CPUEngineWithLMHead
    )
    EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device=["cpu"])(
        CPUEngineWithValueHead
    )
