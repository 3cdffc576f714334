"""Keys of verl that this package's recipes do not use: none is without effect in silence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.launch.verl_keys.effects import OF_OTHER_MANAGERS, effect_of
from coding_model_project.launch.verl_keys.table import LEAVE_OUT, LEGACY_GROUPS, Effect, advice
from coding_model_project.launch.verl_keys.values import value_faults

_MAIN_PPO = "train with `python -m verl.trainer.main_ppo`"


def refusals(config: DictConfig) -> Iterator[str]:
    """Yield a message for each key that verl or the recipe's judge would ignore, or that fails late."""
    for group in LEGACY_GROUPS:
        for key, value in _set(group, config.get(group)):
            found = advice(key, str(value))
            here = found.here if found is not None else ""
            yield f"{key}={value}: verl 0.9 ignores it; {_write(here)}"
    if "actor_rollout_ref" not in config:
        return
    for group in OF_OTHER_MANAGERS:
        for key, value in _set(group.rstrip("."), OmegaConf.select(config, group.rstrip("."))):
            if key not in _DEFAULTS:
                yield (
                    f"{key}={value}: a recipe judges by itself (coding.reward, coding.sandbox); "
                    + (f"leave it out, or {_MAIN_PPO}")
                )
    engines = ("megatron", "veomni", "torchtitan")
    if other := next((one for one in engines if one in config.actor_rollout_ref.actor), None):
        yield f"model_engine={other}: recipes train with FSDP; leave it out, or {_MAIN_PPO}"
        return
    engine = str(OmegaConf.select(config, "actor_rollout_ref.rollout.name"))
    if engine in ("sglang", "trtllm") and find_spec(_PACKAGES[engine]) is None:
        yield f"actor_rollout_ref.rollout.name={engine}: its package is not installed; set it to vllm"
    for key, _, why, line in value_faults(config):
        if key not in _CHECKED_ELSEWHERE:
            yield f"{key}={OmegaConf.select(config, key)}: {why}; {_write(line)}"


_PACKAGES = {"sglang": "sglang", "trtllm": "tensorrt_llm"}
_DEFAULTS = (
    "reward.custom_reward_function.name",
    "reward.sandbox_fusion.max_concurrent",
    "reward.sandbox_fusion.memory_limit_mb",
)
"""Keys with a default in verl's tree, which mean nothing without the key beside them."""

_CHECKED_ELSEWHERE = ("algorithm.adv_estimator", "data.train_files", "data.val_files")


def _set(key: str, node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a group that switch something on."""
    if OmegaConf.is_dict(node):
        for name, child in node.items():
            if name != "_target_":
                yield from _set(f"{key}.{name}", child)
    elif node is not None and node is not False:
        yield key, node


def _write(line: str) -> str:
    return f"set {line}" if line and line != LEAVE_OUT else "leave it out"


def without_effect(
    overrides: Sequence[str], usual: DictConfig, config: DictConfig
) -> Iterator[str]:
    """Yield a line for each override that verl accepts and does not use.

    Args:
        usual: the recipe's configuration without the overrides.
    """
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if text.startswith("~") or "." not in key or key.startswith(("hydra.", "coding.")):
            continue
        known = advice(key, value)
        effect, why = effect_of(key, usual, config, known)
        if effect in (Effect.ignored, Effect.warned, Effect.off):
            line = known.here if known is not None else ""
            remedy = f"; {_write(line)}" if line else ""
            yield f"{text} has no effect: {(known.why if known is not None else '') or why}{remedy}"
