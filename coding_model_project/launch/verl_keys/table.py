"""Effects of overrides, and table.yaml: keys that verl ignores or has renamed, with their successors."""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import coding_beside
from coding_model_project.errors import ConfigError
from coding_model_project.launch.verl_keys import tree
from coding_model_project.launch.verl_keys.tree import select

LEAVE_OUT = "leave out"
"""The advice to delete a key."""


class Effect(StrEnum):
    """The ways in which verl treats a key."""

    taken = "taken"
    off = "off"
    """Read only if another key switches it on."""
    warned = "warned"
    """verl replaces the value, and its log says so."""
    ignored = "ignored"
    """Accepted and read by nobody, without a word."""
    late = "late"
    """The command fails after Ray has started, mostly after models are loaded."""
    refused = "refused"
    """Hydra or verl's validation refuses the command at once."""
    missing = "missing"
    """Not in the command, which fails without it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The effect of one override."""

    key: str
    given: str
    """The override as written; empty for a missing key."""
    effect: Effect
    why: str = ""
    write: str = ""
    """The line to write for main_ppo; empty to keep it."""
    here: str = ""
    """The line to write for this package's recipes."""

    @classmethod
    def of(
        cls, given: str, effect: Effect, why: str = "", write: str = "", here: str = ""
    ) -> Found:
        """Return the effect of an override as written; `here` is `write` by default."""
        key = given.lstrip("+~").partition("=")[0]
        return cls(key, given, effect, why, write, here or write)


LEGACY_GROUPS = ("custom_reward_function", "reward_model", "sandbox_fusion")
"""Groups of verl's tree that main_ppo accepts and does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table; table.yaml describes the fields."""

    keys: Sequence[str]
    values: Sequence[str] = ()
    unread: bool = False
    why: str = ""
    write: str = ""
    here: str = ""
    """Of `advice`, the lines to write instead of the override; an empty line means to leave it out."""


@dataclass(frozen=True, slots=True)
class Words:
    """A key with one of some words; table.yaml describes the fields."""

    key: str
    words: Sequence[str]
    why: str
    write: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    extensible: bool = False

    def instead(self, word: str) -> str:
        """Return a right word itself, or a variable, and for any other one the word to write."""
        if not word or word in self.words or word.startswith("$"):
            return word
        near = difflib.get_close_matches(word, self.words, n=1, cutoff=0.5)
        return self.renamed.get(word) or next(iter(near), self.words[0])


@functools.cache
def _table() -> dict[str, Any]:
    found: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("table.yaml")))
    return found | {"rows": [Row(**row) for row in found["rows"]]}


def checked_for() -> str:
    """Return the version of verl for which the table was checked."""
    return _table()["checked_for"]


def words() -> list[Words]:
    """Return the keys that have one of some words."""
    return [Words(**row) for row in _table()["words"]]


def switched_off(key: str, config: DictConfig) -> str:
    """Return why a key that verl reads has no effect beside the others; empty if it has one."""
    if key.startswith("critic.") and key != "critic.enable" and not has_critic(config):
        return "this algorithm.adv_estimator has no critic"
    for row in _table()["switches"]:
        needs, unless = row.get("needs", ()), row.get("unless")
        on = any(select(config, need) for need in needs)
        off = select(config, unless) if unless else not on
        if key.startswith(row["prefix"]) and key not in needs and off:
            return row.get("why") or f"needs {' or '.join(needs)}{'=True' * (len(needs) == 1)}"
    return ""


def is_read(key: str) -> bool:
    """Return whether verl reads a key that its tree lacks."""
    return any(_rest(pattern, key) is not None for pattern in _table()["read"])


def advice(key: str, value: str) -> Row | None:
    """Return the table's advice for an override, if it has any."""
    for row in _table()["rows"]:
        rests = [rest for rest in (_rest(pattern, key) for pattern in row.keys) if rest is not None]
        if rests and (not row.values or value.strip("'\"").lower() in row.values):
            last, tail = key.rpartition(".")[2], key.partition(".")[2]
            names = {"key": key, "rest": rests[0], "last": last, "tail": tail, "value": value}
            write = row.write.format(**names)
            here = write if row.here == "same" else row.here.format(**names)
            return replace(row, write=write, here=here)
    return None


def _rest(pattern: str, key: str) -> str | None:
    """Return what `*` stands for ("" without one) if a key fits a pattern."""
    found = re.fullmatch(re.escape(pattern).replace(r"\*", "(.+)"), key)
    return None if found is None else "".join(found.groups())


# ── faults of values ─────────────────────────────────────────────────────────────────────────────────

_A = "actor_rollout_ref"
_ACTOR, _ROLLOUT = f"{_A}.actor", f"{_A}.rollout"
_MANAGER = "reward.reward_manager"
OUR_MANAGER = "CodeRewardManager"
OUR_MODULE = "pkg://coding_model_project.verl_reward"
MANAGERS = ("dapo", "gdpo", "naive", "rate_limited", "remote")
"""verl's own reward managers."""
OURS = (
    f"{_MANAGER}.source=importlib {_MANAGER}.name={OUR_MANAGER} {_MANAGER}.module.path={OUR_MODULE}"
)
"""The overrides with which any command gets its rewards from this package."""


def has_critic(config: DictConfig) -> bool:
    """Return whether a run trains a critic."""
    if (enabled := select(config, "critic.enable")) is not None:
        return bool(enabled)
    return select(config, "algorithm.adv_estimator") == "gae"


Fault = tuple[str, Effect, str, str]
"""Key, effect, reason and the line to write for main_ppo; empty if the reason names it."""


def word_faults(config: DictConfig) -> Iterator[Fault]:
    """Check the keys that have one of some words, or several; unknown variables pass."""
    library = select(config, f"{_A}.model.external_lib")
    has_own_modules = bool(library or os.environ.get("VERL_USE_EXTERNAL_MODULES"))
    for row in words():
        value = select(config, row.key)
        if value is None or (row.extensible and has_own_modules):
            continue
        several = OmegaConf.is_list(value)
        given = [str(one).strip() for one in (value if several else str(value).split(","))]
        instead = [row.instead(word) for word in given]
        wrong = next((one for one, new in zip(given, instead, strict=True) if one != new), None)
        if wrong is not None:
            why = f"{wrong}: {row.why}; expected {', '.join(row.words)}"
            right = f"[{','.join(instead)}]" if several else ",".join(instead)
            yield row.key, Effect.late, why, row.write or f"{row.key}={right}"


def _managers(config: DictConfig) -> Iterator[Fault]:
    manager = select(config, _MANAGER)
    if not OmegaConf.is_dict(manager):
        yield _MANAGER, Effect.late, "a mapping is expected", f"{_MANAGER}.name={manager}"
        return
    name = str(manager.get("name"))
    if manager.get("source") == "register" and name not in MANAGERS and not name.startswith("$"):
        known = ", ".join(MANAGERS)
        why = f"{name}: verl has no such reward manager; expected {known}, or one of your own"
        line = OURS if name == OUR_MANAGER else LEAVE_OUT
        yield f"{_MANAGER}.name", Effect.late, f"{why} with {_MANAGER}.source=importlib", line


def _strategies(config: DictConfig) -> Iterator[Fault]:
    for part in (_ACTOR, *(["critic"] if has_critic(config) else [])):
        value = str(select(config, f"{part}.strategy"))
        fsdp = tree.has(config, f"{_ACTOR}.fsdp_config")
        words = ("fsdp2", "fsdp") if fsdp else ("megatron", "veomni", "torchtitan")
        if value not in words and not value.startswith("$"):
            why = f"{value}: no such backend; expected {' or '.join(words)}"
            yield f"{part}.strategy", Effect.late, why, f"{part}.strategy={words[0]}"


def _rollout_name(config: DictConfig) -> Iterator[Fault]:
    key = f"{_ROLLOUT}.name"
    if tree.has(config, key) and OmegaConf.is_missing(select(config, _ROLLOUT), "name"):
        yield key, Effect.missing, "has no default any more", f"{key}=vllm"


def _files(config: DictConfig) -> Iterator[Fault]:
    if select(config, "data.custom_cls.path"):
        return
    for key in ("data.train_files", "data.val_files"):
        value = select(config, key)
        for path in value if OmegaConf.is_list(value) else [value]:
            known = str(path).endswith((".parquet", ".json", ".jsonl"))
            if path is not None and not known and "$" not in str(path):
                why = f"{path}: verl reads .parquet, .json and .jsonl files"
                yield key, Effect.late, why, f"{key}=FILE.parquet"


def _batches(config: DictConfig) -> Iterator[Fault]:
    """Check batch sizes that the actor refuses without dynamic batches."""
    dynamic = select(config, f"{_ACTOR}.use_dynamic_bsz")
    if select(config, f"{_ROLLOUT}.log_prob_use_dynamic_bsz") != dynamic:
        key = f"{_ROLLOUT}.log_prob_use_dynamic_bsz"
        why = f"must equal {_ACTOR}.use_dynamic_bsz={dynamic}"
        yield key, Effect.late, why, f"{key}={dynamic}"
    if dynamic:
        return
    for part, name in ((_ACTOR, "ppo_micro_batch_size"), (_ROLLOUT, "log_prob_micro_batch_size")):
        old, new = f"{part}.{name}", f"{part}.{name}_per_gpu"
        total, per_gpu = select(config, old), select(config, new)
        if total is not None and per_gpu is not None:
            yield old, Effect.refused, f"{new} is set as well", LEAVE_OUT
        elif total is not None:
            yield old, Effect.late, "counts all GPUs; only _per_gpu is read", f"{new}={total}"
        elif per_gpu is None:
            yield new, Effect.missing, f"or {_ACTOR}.use_dynamic_bsz=True", f"{new}=N"
    key = f"{_ACTOR}.ppo_mini_batch_size"
    batch, mini = select(config, "data.train_batch_size"), select(config, key)
    if isinstance(batch, int) and isinstance(mini, int) and 0 < batch < mini:
        why = f"{mini} exceeds data.train_batch_size={batch}; it counts prompts, not samples"
        yield key, Effect.refused, why, f"{key}={batch}"


def _filter_metric(config: DictConfig) -> Iterator[Fault]:
    key = "algorithm.filter_groups.metric"
    value, on = select(config, key), select(config, "algorithm.filter_groups.enable")
    if not on or value in ("reward", "acc") or str(value).startswith("$"):
        return
    own = select(config, "reward.custom_reward_function.path")
    own = own or select(config, f"{_MANAGER}.source") == "importlib"
    known_wrong = str(value).startswith(("seq_", "token_", "score"))
    if known_wrong or not own:
        why = f"{value}: only reward, or a name that the reward manager returns, such as acc"
        line = "reward" if known_wrong else "acc"
        yield key, Effect.late, why, f"{key}={line}"


def coding_faults(config: DictConfig) -> Iterator[Fault]:
    """Check this package's own keys, which CodeRewardManager reads in any recipe."""
    given = select(config, "coding")
    if not OmegaConf.is_dict(given) or select(config, f"{_MANAGER}.name") != OUR_MANAGER:
        return
    try:
        coding_beside(config)
    except ConfigError as error:
        key = re.split(r"[:=]", str(error))[0]
        yield key, Effect.refused, str(error), ""


VALUES: tuple[Callable[[DictConfig], Iterator[Fault]], ...] = (
    word_faults,
    _rollout_name,
    _managers,
    _strategies,
    _files,
    _batches,
    _filter_metric,
)
"""Checks of values that verl makes late, or at once; each yields its faults."""


def value_faults(config: DictConfig) -> list[Fault]:
    """Return the faults of a composed configuration's values."""
    return [fault for check in VALUES for fault in check(config)]
