"""Rules for values, checked without verl, which reports them a minute later or never.

rules.yaml is the table of them; `relations` has what keys mean together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import DPOLoss, TrainingMode, TrainingSampler, mode_of
from coding_model_project.harbor.harbor_config import AgentPlace, Trained
from coding_model_project.launch.checks import episode_checks
from coding_model_project.launch.verl_keys.effects import OF_OTHER_MANAGERS, effect_of
from coding_model_project.launch.verl_keys.table import (
    LEAVE_OUT,
    LEGACY_GROUPS,
    Effect,
    Fault,
    advice,
    value_faults,
    word_faults,
)
from coding_model_project.launch.verl_keys.tree import leaves

_ABSENT = object()
_FILE = Path(__file__).with_name("rules.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A rule of rules.yaml, which describes the fields."""

    expected: str
    keys: Mapping[str, list[str]]
    whole: bool = False
    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    words: tuple[Any, ...] = ()
    of: str = ""

    @property
    def full_keys(self) -> list[str]:
        """The full keys. A trailing `~` marks a key that may be null."""
        return [f"{section}.{name}" for section, names in self.keys.items() for name in names]

    def holds(self, value: Any) -> bool:
        if value in self.words:
            return True
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return self.least <= value <= self.most and self.above < value < self.below

    def broken(self, config: DictConfig) -> Iterator[str]:
        """Yield a message for each key that is out of range."""
        for key in self.full_keys if not self.of or self.of in config else ():
            value = OmegaConf.select(config, key.rstrip("~"), default=_ABSENT)
            if value is _ABSENT or (value is None and key.endswith("~")) or self.holds(value):
                continue
            yield f"{key.rstrip('~')}={_shown(value)}: set it to {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A rule of rules.yaml for some runs, which describes the fields."""

    when: str
    key: str
    why: str
    remedy: str
    only: Sequence[Any] | None = None
    never: Sequence[Any] = ()

    def broken(self, config: DictConfig) -> Iterator[str]:
        """Yield a message if the key has a value that this run must not have."""
        value = OmegaConf.select(config, self.key, default=_ABSENT)
        mode, staleness = mode_of(config)
        names: dict[str, Any] = {"mode": mode, "staleness": staleness, "versions": staleness + 1}
        names["estimator"] = OmegaConf.select(config, "algorithm.adv_estimator")
        names["loss"] = _loss(config)
        only = [*(self.only or ()), *(str(one).format(**names) for one in self.only or ())]
        outside = self.only is not None and value not in only and str(value) not in only
        if value is not _ABSENT and (outside or value in self.never):
            why, remedy = self.why.format(**names), self.remedy.format(**names)
            yield f"{self.key}={_shown(value)}: {why}: {remedy}"


def _shown(value: Any) -> Any:
    """Return a value as in YAML."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value


@functools.cache
def table() -> tuple[list[Range], list[Case], list[str]]:
    """Return rules.yaml: rules of numbers, rules of some runs, and the estimators that need groups."""
    found = yaml.safe_load(_FILE.read_text())
    numbers = [Range(**one) for one in found["numbers"]]
    return numbers, [Case(**one) for one in found["cases"]], found["group_estimators"]


def _kinds(config: DictConfig) -> set[str]:
    """Return the kinds of runs, as rules.yaml names them, that a configuration is of."""

    def value(key: str) -> Any:
        return OmegaConf.select(config, key)

    pairs, sampler = "dpo" in config.coding, value("coding.training.sampler")
    found = {
        "supervised": "engine" in config,
        "groups": value("algorithm.adv_estimator") in table()[2],
        "pairs": pairs,
        "cdpo": pairs and _loss(config) == DPOLoss.cdpo,
        "other_losses": pairs and _loss(config) != DPOLoss.cdpo,
        "validated_pairs": pairs and value("trainer.test_freq") != -1,
        "online": sampler == TrainingSampler.online,
        "uniform": sampler == TrainingSampler.uniform,
    }
    if "actor_rollout_ref" in config:
        agent, of_agent = config.coding.agent, episode_checks.has_agent(config)
        mode, staleness = mode_of(config)
        lora = bool(value("actor_rollout_ref.model.lora_rank"))
        found |= {
            "policy": True,
            "adapters_on_a_cpu": lora and value("trainer.device") == "cpu",
            "sync": not mode.asynchronous,
            "asynchronous": mode.asynchronous,
            "stale": mode.asynchronous and staleness > 0,
            "separate": mode is TrainingMode.separate_async,
            "agentic": of_agent or episode_checks.has_bash(config),
            "agent_in_room": of_agent and agent.place == AgentPlace.room,
            "conversations": of_agent and agent.train != Trained.main and agent.conversations > 1,
        }
    return {name for name, is_one in found.items() if is_one}


def _loss(config: DictConfig) -> str | None:
    loss = OmegaConf.select(config, "coding.dpo.loss")
    return getattr(loss, "name", loss)  # a string in a recorded configuration


def broken(config: DictConfig) -> list[str]:
    """Return a line for each key without an effect, or with a value that no run, or not this one, has."""
    ranges, cases, _ = table()
    lines = [*_unused(config), *(line for rule in ranges for line in rule.broken(config))]
    kinds = _kinds(config)
    for case in cases:
        if case.when in kinds and not any(line.startswith(f"{case.key}=") for line in lines):
            lines += case.broken(config)
    return lines


# ── keys of verl that recipes do not use ─────────────────────────────────────────────────────────────

_MAIN_PPO = "train with `python -m verl.trainer.main_ppo`"


def _unused(config: DictConfig) -> Iterator[str]:
    """Yield a message for each key that verl or the recipe's judge would ignore, or that fails late."""
    for group in LEGACY_GROUPS:
        for key, value in _set(config, group):
            found = advice(key, str(value))
            here = found.here if found is not None else ""
            yield f"{key}={value}: verl 0.9 ignores it; {_write(here)}"
    if "actor_rollout_ref" not in config:
        yield from _said(config, word_faults(config))
        return
    for group in OF_OTHER_MANAGERS:
        for key, value in _set(config, group.rstrip(".")):
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
    yield from _said(config, value_faults(config))


def _said(config: DictConfig, faults: Iterable[Fault]) -> Iterator[str]:
    for key, _, why, line in faults:
        if key not in _CHECKED_ELSEWHERE:
            yield f"{key}={OmegaConf.select(config, key)}: {why}; {_write(line)}"


_PACKAGES = {"sglang": "sglang", "trtllm": "tensorrt_llm"}
_DEFAULTS = (
    "reward.custom_reward_function.name",
    "reward.sandbox_fusion.max_concurrent",
    "reward.sandbox_fusion.memory_limit_mb",
)
"""Keys with a default in verl's tree, which mean nothing without the key beside them."""

_CHECKED_ELSEWHERE = ("data.train_files", "data.val_files")


def _set(config: DictConfig, group: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a group that switch something on."""
    node = OmegaConf.select(config, group)
    for name, _ in leaves(node) if OmegaConf.is_dict(node) else ():
        value = OmegaConf.select(node, name)
        off = value is None or value is False or OmegaConf.is_dict(value)
        if not off and name.rpartition(".")[2] != "_target_":
            yield f"{group}.{name}", value


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
