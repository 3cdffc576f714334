"""verl's device platform for a CPU (verl.plugin.platform.PlatformRegistry, a public extension point)."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _device_module() -> types.ModuleType:
    """Return `torch.cpu` plus the functions of torch.cuda that verl calls through get_torch_device()."""
    module = types.ModuleType("torch_cpu_for_verl")
    for name in dir(torch.cpu):
        if not name.startswith("__"):
            setattr(module, name, getattr(torch.cpu, name))

    process = psutil.Process()

    def resident_bytes(*_: Any, **__: Any) -> int:
        return process.memory_info().rss

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def mem_get_info(*_: Any, **__: Any) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    for name in (
        "memory_allocated",
        "memory_reserved",
        "max_memory_allocated",
        "max_memory_reserved",
    ):
        setattr(module, name, resident_bytes)
    for name in (
        "empty_cache",
        "ipc_collect",
        "reset_peak_memory_stats",
        "manual_seed",
        "manual_seed_all",
        "set_device",
    ):
        setattr(module, name, nothing)
    module.__dict__.update(
        is_available=lambda: True,
        mem_get_info=mem_get_info,
        get_device_name=lambda *_, **__: "CPU",
        get_rng_state=lambda *_, **__: torch.get_rng_state(),
        set_rng_state=lambda state, *_, **__: torch.set_rng_state(state),
        device=lambda *_, **__: nullcontext(),
    )
    return module


class PlatformCPU(PlatformBase):
    """A host without an accelerator. VERL_PLATFORM selects it; verl's auto-detection never does."""

    _module = _device_module()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> types.ModuleType:
        return self._module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False

    def current_device(self) -> torch.device:  # pyrefly: ignore[bad-override]  # verl's is an int
        # verl calls tensor.to(get_device_id()), where an int means "accelerator 0".
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "VERL_CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        # verl's resource pools count only "GPU" and "NPU", so a run declares
        # ray_kwargs.ray_init.num_gpus=<world size> as logical slots.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False  # weights travel through shared memory

    def rollout_env_vars(self) -> dict[str, str]:
        return {}

    def cudart(self) -> None:
        return None


def register() -> None:
    PlatformRegistry.register("cpu")(PlatformCPU)
