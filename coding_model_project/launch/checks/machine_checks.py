"""What a training needs of the machine it starts on, where verl would wait for ever or fail late."""

from __future__ import annotations

import importlib.util
import os

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.launch.joining import joined_ray

_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
_CPUS = "ray_kwargs.ray_init.num_cpus"
_ATTENTION = "override_config.attn_implementation"
_CPUS_OF_A_GPU = 3
"""That verl reserves beside each (`max_colocate_count` of verl.trainer.ppo.utils' resource pools)."""
_CPUS_OF_THE_QUEUE = 1
"""TransferQueue's controller, beside one for each of its storage units."""


def check_cpus(config: DictConfig) -> None:
    """Make sure that Ray can give a training on GPUs the CPUs that it reserves: it would wait for ever.

    Not where a cluster is joined, whose nodes are not known here.

    Raises:
        ConfigError: they are too few; says how many are needed, and by which keys.
    """
    if config.trainer.device != "cuda" or joined_ray(config):
        return
    counted = OmegaConf.select(config, _CPUS) or os.cpu_count() or 1
    units = OmegaConf.select(config, _UNITS)
    others = _CPUS_OF_THE_QUEUE + _CPUS_OF_A_GPU * config.trainer.n_gpus_per_node
    if units + others <= counted:
        return
    way = f"{_CPUS}={units + others}"
    if counted > others:
        way = f"{_UNITS}={min(units, counted - others)}, or {way}"
    raise ConfigError(
        f"{_UNITS}={units}: with {others} for the trainer Ray must reserve {units + others} CPUs, and it "
        f"counts {counted} here; the run would wait for ever: set {way}"
    )


def check_attention(config: DictConfig, model_key: str) -> None:
    """Make sure that verl's default attention is installed, if a training on GPUs starts with it.

    Args:
        model_key: of the model's section, "actor_rollout_ref.model" or "model".

    Raises:
        ConfigError: flash-attn is missing and no other attention is chosen.
    """
    if config.trainer.device != "cuda" or joined_ray(config):
        return
    if OmegaConf.select(config, f"{model_key}.{_ATTENTION}") not in (None, "flash_attention_2"):
        return
    if importlib.util.find_spec("flash_attn") is None:
        raise ConfigError(
            "verl trains with flash-attn by default, which is not installed: build it as "
            f"requirements/gpu.txt says, or set +{model_key}.{_ATTENTION}=sdpa"
        )
