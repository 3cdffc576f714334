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
    advice,
    value_faults,
    word_faults,
)

_ABSENT = object()
_FILE = Path(__file__).with_name("rules.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of rules.yaml, which describes the fields."""

    keys: Mapping[str, list[str]]
    remedy: str
    why: str = ""
    when: str = ""
    only: Sequence[Any] | None = None
    never: Sequence[Any] = ()
    whole: bool = False
    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    words: Sequence[Any] = ()

    def holds(self, value: Any, names: Mapping[str, Any]) -> bool:
        if self.only is not None:
            only = [*self.only, *(str(one).format(**names) for one in self.only)]
            return value in only or str(value) in only
        if self.never:
            return value not in self.never
        if value in self.words:
            return True
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return self.least <= value <= self.most and self.above < value < self.below

    def broken(self, config: DictConfig, names: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each key that breaks the rule.

        Args:
            names: values to name in messages, and in `only`.
        """
        for key in (f"{section}.{name}" for section, own in self.keys.items() for name in own):
            full = key.rstrip("~")  # marks a key that may be null
            value = OmegaConf.select(config, full, default=_ABSENT)
            may_be = value is _ABSENT or (value is None and full != key)
            if not may_be and not self.holds(value, names):
                said = f"{self.why}: {self.remedy}" if self.why else self.remedy
                yield f"{full}={_shown(value)}: {said.format(**names)}"


def _shown(value: Any) -> Any:
    """Return a value as in YAML."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value


@functools.cache
def table() -> tuple[list[Rule], list[str]]:
    """Return rules.yaml: the rules, and the estimators that need groups."""
    found = yaml.safe_load(_FILE.read_text())
    return [Rule(**one) for one in found["rules"]], found["group_estimators"]


def _kinds(config: DictConfig) -> set[str]:
    """Return the kinds of runs, as rules.yaml names them, that a configuration is of."""

    def value(key: str) -> Any:
        return OmegaConf.select(config, key)

    pairs, sampler = "dpo" in config.coding, value("coding.training.sampler")
    found = {
        "supervised": "engine" in config,
        "groups": value("algorithm.adv_estimator") in table()[1],
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
    mode, staleness = mode_of(config)
    names: dict[str, Any] = {"mode": mode, "staleness": staleness, "versions": staleness + 1}
    names["estimator"] = OmegaConf.select(config, "algorithm.adv_estimator")
    names["loss"] = _loss(config)
    kinds, found = {"", *_kinds(config)}, dict[str, str]()
    for rule in table()[0]:
        for line in rule.broken(config, names) if rule.when in kinds else ():
            found.setdefault(line.partition("=")[0], line)
    unused = {line.partition("=")[0]: line for line in _unused(config)}
    return [*unused.values(), *(line for key, line in found.items() if key not in unused)]


# ── keys of verl that recipes do not use ─────────────────────────────────────────────────────────────

_MAIN_PPO = "train with `python -m verl.trainer.main_ppo`"


def _unused(config: DictConfig) -> Iterator[str]:
    """Yield a message for each key that recipes do not use, or that fails late."""
    policy = "actor_rollout_ref" in config
    if policy:
        engines = ("megatron", "veomni", "torchtitan")
        if other := next((one for one in engines if one in config.actor_rollout_ref.actor), None):
            yield f"model_engine={other}: recipes train with FSDP; leave it out, or {_MAIN_PPO}"
            return
        key = "actor_rollout_ref.rollout.name"
        engine = str(OmegaConf.select(config, key))
        if engine in _PACKAGES and find_spec(_PACKAGES[engine]) is None:
            yield f"{key}={engine}: its package is not installed; set it to vllm"
    for key, _, why, line in value_faults(config) if policy else word_faults(config):
        yield f"{key}={OmegaConf.select(config, key)}: {why}; {_write(line)}"


_PACKAGES = {"sglang": "sglang", "trtllm": "tensorrt_llm"}


def _write(line: str) -> str:
    return f"set {line}" if line and line != LEAVE_OUT else "leave it out"


_OF_REWARDS = (*(f"{group}." for group in LEGACY_GROUPS), *OF_OTHER_MANAGERS)
"""Keys of rewards that a recipe, which judges by itself, would leave unread."""


def without_effect(
    overrides: Iterable[str], usual: DictConfig, config: DictConfig
) -> Iterator[tuple[str, str, bool]]:
    """Yield each override that verl accepts and nobody uses, a line about it, and whether it is refused.

    Refused are those of rewards: who sets them relies on another judge.

    Args:
        overrides: those of verl's keys.
        usual: the recipe's configuration without the overrides.
    """
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if text.startswith("~"):
            continue
        known = advice(key, value)
        effect, why = effect_of(key, usual, config, known)
        if effect in (Effect.ignored, Effect.warned, Effect.off):
            line = known.here if known is not None else ""
            refused = key.startswith(_OF_REWARDS) and value.lower() not in ("false", "null")
            remedy = f"; {_write(line)}" if line or refused else ""
            why = (known.why if known is not None else "") or why
            yield text, f"{text} has no effect: {why}{remedy}", refused
