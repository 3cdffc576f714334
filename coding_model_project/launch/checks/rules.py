"""Rules for values, checked without verl, which reports them a minute later or never.

rules.yaml is the table of them; `relations` has what keys mean together.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import TrainingMode, staleness_of
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import relations

_ABSENT = object()
_FILE = Path(__file__).with_name("rules.yaml")


@functools.cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(_FILE.read_text())


@functools.cache
def choices() -> Mapping[str, tuple[str, ...]]:
    """Return the words that verl registers, by key."""
    estimators = (*relations.GROUP_ESTIMATORS, *relations.OTHER_ESTIMATORS)
    return {"algorithm.adv_estimator": estimators} | _table()["words"]


_EXTENSIBLE = ("algorithm.adv_estimator", "actor_rollout_ref.actor.policy_loss.loss_mode")
"""Keys for which the user's own modules may register more words with verl."""


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

    def full_keys(self) -> Iterator[str]:
        """Yield the full keys. A trailing `~` marks a key that may be null."""
        return (f"{section}.{name}" for section, names in self.keys.items() for name in names)

    def holds(self, value: Any) -> bool:
        if value in self.words:
            return True
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return self.least <= value <= self.most and self.above < value < self.below

    def broken(self, config: DictConfig) -> Iterator[str]:
        """Yield a message for each key that is out of range."""
        for key in self.full_keys() if not self.of or self.of in config else ():
            value = OmegaConf.select(config, key.rstrip("~"), default=_ABSENT)
            if value is _ABSENT or (value is None and key.endswith("~")) or self.holds(value):
                continue
            shown = "null" if value is None else value
            yield f"{key.rstrip('~')}={shown}: set it to {self.expected}"


@functools.cache
def ranges() -> tuple[Range, ...]:
    """Return the rules of numbers."""
    return tuple(Range(**one) for one in _table()["numbers"])


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
        outside = self.only is not None and value not in self.only
        if value is _ABSENT or not (outside or value in self.never):
            return
        mode, staleness = _mode(config)
        why = self.why.format(mode=mode, staleness=staleness)
        shown = (
            str(value).lower() if isinstance(value, bool) else "null" if value is None else value
        )
        yield f"{self.key}={shown}: {why}: {self.remedy}"


@functools.cache
def cases() -> tuple[Case, ...]:
    """Return the rules of some runs."""
    return tuple(Case(**one) for one in _table()["cases"])


def _mode(config: DictConfig) -> tuple[TrainingMode, int]:
    """Return `coding.mode`, and the staleness that it allows."""
    mode = TrainingMode(config.coding.mode)
    return mode, staleness_of(mode, config.coding.max_staleness)


def _kinds(config: DictConfig) -> set[str]:
    """Return the kinds of runs, as rules.yaml names them, that a configuration is of."""
    found = {"supervised": "engine" in config, "pairs": "dpo" in config.coding}
    if "actor_rollout_ref" in config:
        mode, staleness = _mode(config)
        lora, device = config.actor_rollout_ref.model.lora_rank, config.trainer.device
        found |= {
            "policy": True,
            "adapters_on_a_cpu": device == "cpu" and bool(lora),
            "sync": not mode.asynchronous,
            "asynchronous": mode.asynchronous,
            "stale": mode.asynchronous and staleness > 0,
            "separate": mode is TrainingMode.separate_async,
        }
    return {name for name, is_one in found.items() if is_one}


def _unknown_words(config: DictConfig) -> Iterator[str]:
    """Yield a message for each word that its key does not accept; a value may be a list of words."""
    library = OmegaConf.select(config, "actor_rollout_ref.model.external_lib")
    has_own_modules = bool(library or os.environ.get("VERL_USE_EXTERNAL_MODULES"))
    for key, words in choices().items():
        value = OmegaConf.select(config, key)
        if value is None or (key in _EXTENSIBLE and has_own_modules):
            continue
        for word in value if OmegaConf.is_list(value) else [value]:
            if word not in words:
                close = difflib.get_close_matches(str(word), words, n=1, cutoff=0.5)
                near = f"did you mean {close[0]}? " if close else ""
                yield f"{key}={word}: {near}choose from {', '.join(words)}"


def broken(config: DictConfig) -> Iterator[str]:
    """Yield a line for each key with a value that no run, or not this one, can have."""
    for rule in ranges():
        yield from rule.broken(config)
    yield from _unknown_words(config)
    kinds = _kinds(config)
    for case in cases():
        if case.when in kinds:
            yield from case.broken(config)


def check_relations(config: DictConfig) -> None:
    """Check keys against each other.

    Raises:
        ConfigError: they do not fit together.
    """
    for relation in relations.RELATIONS:  # one fault may break several of them
        if message := relation(config):
            raise ConfigError(message)
