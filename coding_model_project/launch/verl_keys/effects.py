"""The effect of each override of a main_ppo command."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from coding_model_project.launch.verl_keys import tree
from coding_model_project.launch.verl_keys.table import (
    LEAVE_OUT,
    LEGACY_GROUPS,
    OUR_MANAGER,
    OUR_MODULE,
    OURS,
    Effect,
    Found,
    Row,
    advice,
    coding_faults,
    is_read,
    switched_off,
    value_faults,
)
from coding_model_project.launch.verl_keys.tree import select

_A = "actor_rollout_ref"
_ACTOR, _ROLLOUT, _REF = f"{_A}.actor", f"{_A}.rollout", f"{_A}.ref"
_MANAGER = "reward.reward_manager"


CONVERTED: Mapping[str, Effect] = {
    f"{_ACTOR}.": Effect.refused,
    "critic.": Effect.refused,
    f"{_REF}.": Effect.late,
    f"{_ROLLOUT}.": Effect.late,
    f"{_A}.model.": Effect.late,
}
"""Parts of the tree that become dataclasses, and when a key fails that they lack."""


# ── one command ───────────────────────────────────────────────────────────────────────────────────


def examine(
    overrides: Sequence[str], config_name: str = "ppo_trainer", own: DictConfig | None = None
) -> list[Found]:
    """Return the effect of each override, in order, and then missing keys.

    Args:
        overrides: Hydra's overrides.
        config_name: the primary configuration; one that verl lacks counts as ppo_trainer.
        own: a configuration file of the user's own, whose keys apply before the overrides.

    Raises:
        ConfigError: verl is not installed.
    """
    base, refusals = _base(config_name, overrides)
    config = base.copy()
    given = [*(f"++{line}" for line in _lines(own)), *overrides]
    for text in given:
        override = tree.parsed(text)
        if override is None:
            refusals[text] = tree.UNREADABLE
        elif text not in refusals and not _chooses(override.key_or_group):
            refusals[text] = tree.apply(config, override)
    values = [*value_faults(config), *coding_faults(config)]
    faults = {key: (effect, why, line) for key, effect, why, line in values}
    found = [_found(text, base, config, refusals.get(text, ""), faults) for text in given]
    keys = {one.key for one in found}
    judged_here = select(config, f"{_MANAGER}.module.path") == OUR_MODULE
    for number, one in enumerate(found):
        ours = re.search(r"coding\.(?:reward|sandbox)\.\S+", one.here) if judged_here else None
        one = replace(one, write=f"+{ours[0]}", here="") if ours else one
        new = one.write.lstrip("+").partition("=")[0]
        if new != one.key and new in keys:  # the command sets it already
            one = replace(one, write=LEAVE_OUT, here=LEAVE_OUT)
        found[number] = one
    missing = ((key, fault) for key, fault in faults.items() if key not in keys)
    return [*found, *(Found(key, "", Effect.missing, *fault[1:]) for key, fault in missing)]


def _base(config_name: str, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Return verl's tree with the command's choices of groups, and choices that Hydra refuses."""
    groups: list[str] = []
    refusals: dict[str, str] = {}
    for text in overrides:
        override = tree.parsed(text)
        if override is None or not tree.is_group(override.key_or_group):
            continue
        try:
            tree.compose_verl(config_name, [*groups, text])
            groups.append(text)
        except HydraException as error:
            refusals[text] = " ".join(str(error).split("Available options")[0].split())
    return tree.compose_verl(config_name, groups), refusals


def _chooses(key: str) -> bool:
    """Return whether a key is Hydra's own or chooses a file, so that it sets no key of the tree."""
    return tree.is_group(key) or key.partition(".")[0] == "hydra"


def _lines(config: DictConfig | None) -> Iterator[str]:
    """Yield the leaves of a user's own file as overrides."""
    for key, node in tree.leaves(config or {}):
        if key.partition(".")[0] in ("defaults", "hydra"):
            continue
        value = OmegaConf.to_container(node) if OmegaConf.is_config(node) else node._value()
        shown = "null" if value is None else str(value)
        yield f"{key}={shown}" if not isinstance(value, str) else f"{key}='{shown}'"


def _found(
    text: str,
    base: DictConfig,
    config: DictConfig,
    refusal: str,
    faults: Mapping[str, tuple[Effect, str, str]],
) -> Found:
    bare = text.lstrip("+~")
    key, _, value = bare.partition("=")
    known = advice(key, value)
    if refusal:
        return _refused(text, base, refusal, known)
    if _chooses(key) or text.startswith("~"):
        return Found.of(text, Effect.taken)
    effect, why = effect_of(key, base, config, known)
    if effect in (Effect.taken, Effect.off):
        return Found.of(text, *faults.get(key, (effect, why, "")))
    if known is not None and (known.why or known.write):
        return _advised(text, effect, known.why or why, known)
    if key.partition(".")[0] == "coding":
        return Found.of(text, effect, why, f"{text} {OURS}", bare)
    return Found.of(text, effect, why, LEAVE_OUT)


def _advised(text: str, effect: Effect, why: str, known: Row) -> Found:
    return Found.of(text, effect, why, known.write or LEAVE_OUT, known.here or LEAVE_OUT)


def _refused(text: str, base: DictConfig, refusal: str, known: Row | None) -> Found:
    bare = text.lstrip("+~")
    key = bare.partition("=")[0]
    if refusal != "no such key":  # it exists already, or its value cannot be read
        if known is not None and known.unread:
            return _advised(text, Effect.refused, refusal, known)
        write = bare if tree.has(base, key) and text.startswith("+") else LEAVE_OUT
        return Found.of(text, Effect.refused, refusal, write)
    if known is not None:
        return _advised(text, Effect.refused, known.why or refusal, known)
    if addable(key, base):
        why = "the key is read, but verl's tree lacks it"
        return Found.of(text, Effect.refused, why, f"+{bare}")
    near = nearest(key, [one for one, _ in tree.leaves(base)])
    why = f"{refusal}; did you mean {near}?" if near else f"{refusal} in verl {tree.version()}"
    return Found.of(text, Effect.refused, why, LEAVE_OUT)


def addable(key: str, base: DictConfig) -> bool:
    """Return whether a key that the tree lacks has an effect once `+` adds it."""
    if is_read(key) or tree.is_open(base, key):
        return True
    return any(map(key.startswith, CONVERTED)) and not tree.unknown_field(base, key)


def effect_of(
    key: str, base: DictConfig, config: DictConfig, known: Row | None
) -> tuple[Effect, str]:
    """Return the effect of an override that Hydra accepts."""
    if known is not None and known.unread:
        return Effect.ignored, f"nobody reads it in verl {tree.version()}"
    if warned := _warned(key, config):
        return Effect.warned, warned
    if off := switched_off(key, config):
        return Effect.off, off
    if unread := _unread(key, config):
        return Effect.ignored, unread
    if tree.has(base, key) or is_read(key) or tree.is_open(base, key):
        return Effect.taken, ""
    for prefix, effect in CONVERTED.items():
        if key.startswith(prefix):
            if tree.unknown_field(base, key):
                return effect, f"no such field in verl {tree.version()}: a TypeError"
            return Effect.taken, ""
    if key.startswith("data.") and select(config, "data.custom_cls.path"):
        return Effect.taken, "read by data.custom_cls, if at all"
    return Effect.ignored, f"no such key in verl {tree.version()}, and nobody reads what + adds"


def _unread(key: str, config: DictConfig) -> str:
    """Return why a key has no effect beside other keys; empty if it has one."""
    ours = select(config, f"{_MANAGER}.name") == OUR_MANAGER
    in_own_recipe = select(config, f"{_MANAGER}.module.path") == OUR_MODULE
    if key.partition(".")[0] == "coding":
        return "" if ours else f"read by {_MANAGER}.name={OUR_MANAGER} only"
    if ours and not in_own_recipe and key.startswith(OF_OTHER_MANAGERS):
        return "a recipe judges by itself (coding.reward, coding.sandbox)"
    if key.startswith("reward.reward_kwargs."):
        manager, source = (select(config, f"{_MANAGER}.{name}") for name in ("name", "source"))
        name = key.split(".")[2]
        if ours or (source == "register" and (manager != "dapo" or name not in _OF_DAPO)):
            instead = "; CodeRewardManager reads +coding.reward.shaping.overlong_buffer=TOKENS"
            return f"read by {_MANAGER}.name=dapo only ({', '.join(_OF_DAPO)}){instead * ours}"
    if key == f"{_ACTOR}.clip_ratio":
        return f"{_ACTOR}.clip_ratio_low and clip_ratio_high win, which have defaults"
    fusion, own = "reward.sandbox_fusion.", "reward.custom_reward_function"
    if key.startswith(fusion) and select(config, f"{own}.path") and select(config, f"{fusion}url"):
        return f"goes to verl's own scorer only, not to {own}"
    return ""


_OF_DAPO = ("overlong_buffer_cfg", "max_resp_len")
OF_OTHER_MANAGERS = (
    "reward.custom_reward_function.",
    "reward.sandbox_fusion.",
    "reward.reward_kwargs.",
)
"""Keys that the recipes' CodeRewardManager does not read."""


def _warned(key: str, config: DictConfig) -> str:
    groups = "algorithm.filter_groups"
    if key == f"{groups}.max_num_gen_batches":
        return f"no bound on batches any more; {groups}.max_inflight_gen_batches bounds concurrency"
    mode = select(config, "trainer.v1.trainer_mode")
    by_one = select(config, f"{groups}.enable") or mode in ("colocate_async", "separate_async")
    if key == "data.gen_batch_size" and by_one and select(config, key) not in (None, 1):
        return "replaced by 1 with filter_groups and in the asynchronous modes"
    return ""


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the key with an effect that a misspelt one means; empty without a close one.

    Keys of the same group are compared by their last part: a long group alone makes no likeness.
    """
    group, _, last = key.rpartition(".")
    others = [one for one in known if not _without_effect(one)]
    beside = {one.rpartition(".")[2]: one for one in others if one.rpartition(".")[0] == group}
    if close := difflib.get_close_matches(last, beside, n=1, cutoff=0.8):
        return beside[close[0]]
    if beside:
        return ""
    section = [one for one in others if one.partition(".")[0] == key.partition(".")[0]]
    close = difflib.get_close_matches(key, section, n=1, cutoff=0.88)
    return close[0] if close else ""


@functools.cache
def _without_effect(key: str) -> bool:
    known = advice(key, "")
    return key.partition(".")[0] in LEGACY_GROUPS or (known is not None and known.unread)
