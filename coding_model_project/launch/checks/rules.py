"""Rules for values, checked without verl, which reports them a minute later or never.

rules.yaml has the numbers that keys accept, CHOICES the words, and `relations` what keys mean together.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import relations

_ABSENT = object()
_ACTOR = "actor_rollout_ref.actor"
_SCHEDULES = ("constant", "cosine")

CHOICES: Mapping[str, tuple[str, ...]] = {
    "algorithm.adv_estimator": (*relations.GROUP_ESTIMATORS, *relations.OTHER_ESTIMATORS),
    "trainer.logger": (
        *("console", "file", "tensorboard", "wandb", "mlflow", "swanlab", "vemlp_wandb", "clearml"),
        *("trackio", "rl_insight"),
    ),
    f"{_ACTOR}.loss_agg_mode": (
        *("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean"),
        "seq-mean-token-sum-norm",
    ),
    f"{_ACTOR}.policy_loss.loss_mode": (
        *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean"),
        *("dro", "cispo", "bypass_mode"),
    ),
    "trainer.resume_mode": ("auto", "disable", "resume_path"),
    "data.truncation": ("error", "left", "right", "middle"),
    "optim.lr_scheduler_type": _SCHEDULES,
    f"{_ACTOR}.optim.lr_scheduler_type": _SCHEDULES,
}
"""The words that verl registers, by key; a test compares."""
_EXTENSIBLE = ("algorithm.adv_estimator", f"{_ACTOR}.policy_loss.loss_mode")
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
    """Return the rules of rules.yaml."""
    return tuple(Range(**one) for one in yaml.safe_load(_FILE.read_text()))


_FILE = Path(__file__).with_name("rules.yaml")


def _unknown_words(config: DictConfig) -> Iterator[str]:
    """Yield a message for each word that its key does not accept; a value may be a list of words."""
    library = OmegaConf.select(config, "actor_rollout_ref.model.external_lib")
    has_own_modules = bool(library or os.environ.get("VERL_USE_EXTERNAL_MODULES"))
    for key, words in CHOICES.items():
        value = OmegaConf.select(config, key)
        if value is None or (key in _EXTENSIBLE and has_own_modules):
            continue
        for word in value if OmegaConf.is_list(value) else [value]:
            if word not in words:
                close = difflib.get_close_matches(str(word), words, n=1, cutoff=0.5)
                near = f"did you mean {close[0]}? " if close else ""
                yield f"{key}={word}: {near}choose from {', '.join(words)}"


def broken(config: DictConfig) -> Iterator[str]:
    """Yield a line for each key outside of its range or words, with the valid values."""
    for rule in ranges():
        yield from rule.broken(config)
    yield from _unknown_words(config)


def check_relations(config: DictConfig) -> None:
    """Check keys against each other.

    Raises:
        ConfigError: they do not fit together.
    """
    for relation in relations.RELATIONS:  # one fault may break several of them
        if message := relation(config):
            raise ConfigError(message)
