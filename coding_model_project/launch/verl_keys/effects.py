"""The effect of each override of a main_ppo command."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.typed import coding_beside
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.relations import GROUP_ESTIMATORS, OTHER_ESTIMATORS
from coding_model_project.launch.verl_keys import tree
from coding_model_project.launch.verl_keys.table import LEGACY_GROUPS, Advice, advice, is_read

LEAVE_OUT = "leave out"


class Effect(StrEnum):
    """What becomes of a key."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


_A = "actor_rollout_ref"
_ACTOR, _ROLLOUT, _REF = f"{_A}.actor", f"{_A}.rollout", f"{_A}.ref"
_CORRECTION = "algorithm.rollout_correction"
_MANAGER = "reward.reward_manager"


# ── switches ──────────────────────────────────────────────────────────────────────────────────────


def _get(config: DictConfig, key: str) -> Any:
    return tree.select(config, key)


def _critic(config: DictConfig) -> bool:
    enabled = _get(config, "critic.enable")
    return (
        bool(enabled) if enabled is not None else _get(config, "algorithm.adv_estimator") == "gae"
    )


def _kl_in_reward(config: DictConfig) -> bool:
    return bool(_get(config, "algorithm.use_kl_in_reward"))


def _kl_loss(config: DictConfig) -> bool:
    return bool(_get(config, f"{_ACTOR}.use_kl_loss"))


def _reference(config: DictConfig) -> bool:
    return _kl_loss(config) or _kl_in_reward(config)


SWITCHES: Mapping[str, tuple[Callable[[DictConfig], bool], str]] = {
    "critic.": (_critic, "this algorithm.adv_estimator has no critic"),
    "algorithm.kl_ctrl.": (_kl_in_reward, "needs algorithm.use_kl_in_reward=True"),
    "algorithm.kl_penalty": (_kl_in_reward, "needs algorithm.use_kl_in_reward=True"),
    f"{_ACTOR}.kl_loss_": (_kl_loss, f"needs {_ACTOR}.use_kl_loss=True"),
    f"{_REF}.": (_reference, f"needs {_ACTOR}.use_kl_loss or algorithm.use_kl_in_reward"),
    "reward.reward_model.": (
        lambda config: bool(_get(config, "reward.reward_model.enable")),
        "needs reward.reward_model.enable=True",
    ),
    f"{_ACTOR}.ppo_micro_batch_size": (
        lambda config: not _get(config, f"{_ACTOR}.use_dynamic_bsz"),
        f"{_ACTOR}.use_dynamic_bsz makes batches by tokens",
    ),
}
"""Prefixes of keys that a switch turns off, with the switch; the switches themselves are not off."""

_THEMSELVES = ("critic.enable", "reward.reward_model.enable")

CONVERTED: Mapping[str, Effect] = {
    f"{_ACTOR}.": Effect.refused,
    "critic.": Effect.refused,
    f"{_REF}.": Effect.late,
    f"{_ROLLOUT}.": Effect.late,
    f"{_A}.model.": Effect.late,
}
"""Parts of the tree that become dataclasses, and when a key fails that they lack."""


# ── values ────────────────────────────────────────────────────────────────────────────────────────

Fault = tuple[str, Effect, str, str]
"""Key, effect, reason and the line to write for main_ppo."""


def _words(
    key: str, words: Sequence[str], why: str, renamed: Mapping[str, str] | None = None
) -> Callable[[DictConfig], Iterator[Fault]]:
    """Return a check that a key has one of some words; unknown shell variables pass."""

    def check(config: DictConfig) -> Iterator[Fault]:
        value = _get(config, key)
        given = str(value).split(",") if isinstance(value, str) else []
        for word in given:
            if word.startswith("$") or word.strip() in words or not word.strip():
                continue
            new = (renamed or {}).get(word.strip())
            line = (
                f"{key}={new}"
                if new
                else LEAVE_OUT
                if key.endswith(".mode")
                else f"{key}={words[0]}"
            )
            yield key, Effect.late, f"{word}: {why}; expected {', '.join(words)}", line

    return check


def _managers(config: DictConfig) -> Iterator[Fault]:
    manager = _get(config, _MANAGER)
    if not OmegaConf.is_dict(manager):
        yield _MANAGER, Effect.late, "a mapping is expected", f"{_MANAGER}.name={manager}"
        return
    pattern = r'@register\(["\'](\w+)["\']\)'
    known = tree.registered("experimental/reward_loop/reward_manager", pattern)
    known = (*known, "rate_limited")
    name = str(manager.get("name"))
    if manager.get("source") == "register" and name not in known and not name.startswith("$"):
        why = (
            f"{name}: no such reward manager; expected {', '.join(known)}, or one of your own with "
        )
        yield f"{_MANAGER}.name", Effect.late, f"{why}{_MANAGER}.source=importlib", LEAVE_OUT


def _strategies(config: DictConfig) -> Iterator[Fault]:
    for part in (_ACTOR, *(["critic"] if _critic(config) else [])):
        value = str(_get(config, f"{part}.strategy"))
        fsdp = tree.has(config, f"{_ACTOR}.fsdp_config")
        words = ("fsdp2", "fsdp") if fsdp else ("megatron", "veomni", "torchtitan")
        if value not in words and not value.startswith("$"):
            why = f"{value}: no such backend; expected {' or '.join(words)}"
            yield f"{part}.strategy", Effect.late, why, f"{part}.strategy={words[0]}"


def _rollout_name(config: DictConfig) -> Iterator[Fault]:
    key = f"{_ROLLOUT}.name"
    if tree.has(config, key) and OmegaConf.is_missing(_get(config, _ROLLOUT), "name"):
        yield key, Effect.missing, "has no default any more", f"{key}=vllm"


def _files(config: DictConfig) -> Iterator[Fault]:
    if _get(config, "data.custom_cls.path"):
        return
    for key in ("data.train_files", "data.val_files"):
        value = _get(config, key)
        for path in value if OmegaConf.is_list(value) else [value]:
            known = str(path).endswith((".parquet", ".json", ".jsonl"))
            if path is not None and not known and "$" not in str(path):
                why = f"{path}: verl reads .parquet, .json and .jsonl files"
                yield key, Effect.late, why, f"{key}=FILE.parquet"


def _batches(config: DictConfig) -> Iterator[Fault]:
    """Check batch sizes that the actor refuses without dynamic batches."""
    dynamic = _get(config, f"{_ACTOR}.use_dynamic_bsz")
    if _get(config, f"{_ROLLOUT}.log_prob_use_dynamic_bsz") != dynamic:
        key = f"{_ROLLOUT}.log_prob_use_dynamic_bsz"
        why = f"must equal {_ACTOR}.use_dynamic_bsz={dynamic}"
        yield key, Effect.late, why, f"{key}={dynamic}"
    if dynamic:
        return
    for part, name in ((_ACTOR, "ppo_micro_batch_size"), (_ROLLOUT, "log_prob_micro_batch_size")):
        old, new = f"{part}.{name}", f"{part}.{name}_per_gpu"
        total, per_gpu = _get(config, old), _get(config, new)
        if total is not None and per_gpu is not None:
            yield old, Effect.refused, f"{new} is set as well", LEAVE_OUT
        elif total is not None:
            yield old, Effect.late, "counts all GPUs; only _per_gpu is read", f"{new}={total}"
        elif per_gpu is None:
            yield new, Effect.missing, f"or {_ACTOR}.use_dynamic_bsz=True", f"{new}=N"
    batch, mini = (
        _get(config, k) for k in ("data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size")
    )
    if isinstance(batch, int) and isinstance(mini, int) and 0 < batch < mini:
        key = f"{_ACTOR}.ppo_mini_batch_size"
        why = f"{mini} exceeds data.train_batch_size={batch}; it counts prompts, not samples"
        yield key, Effect.refused, why, f"{key}={batch}"


def _filter_metric(config: DictConfig) -> Iterator[Fault]:
    key = "algorithm.filter_groups.metric"
    own = (
        _get(config, "reward.custom_reward_function.path")
        or _get(config, f"{_MANAGER}.source") == "importlib"
    )
    value, words = _get(config, key), ("reward", "acc")
    known_wrong = str(value).startswith(("seq_", "token_", "score"))
    if (
        not _get(config, "algorithm.filter_groups.enable")
        or value in words
        or str(value).startswith("$")
    ):
        return
    if known_wrong or not own:
        why = f"{value}: only reward, or a name that the reward manager returns, such as acc"
        line = "reward" if known_wrong else "acc"
        yield key, Effect.late, why, f"{key}={line}"


def _coding(config: DictConfig) -> Iterator[Fault]:
    """Check this package's own keys, which CodeRewardManager reads in any recipe."""
    given = _get(config, "coding")
    if not OmegaConf.is_dict(given) or _get(config, f"{_MANAGER}.name") != "CodeRewardManager":
        return
    plain = {name: given._get_node(name) for name in given if name != "on_ungradable"}
    try:
        coding_beside(DictConfig({"coding": plain}))
    except ConfigError as error:
        key = re.split(r"[:=]", str(error))[0]
        yield key, Effect.refused, str(error), LEAVE_OUT


CRITERIA = (
    *(f"token_k{n}" for n in (1, 2, 3)),
    *(f"seq_{how}_k{n}" for how in ("sum", "mean") for n in (1, 2, 3)),
    *("seq_max_k2", "seq_max_k3"),
)
"""The words of `rollout_rs` (a test compares)."""
VALUES: tuple[Callable[[DictConfig], Iterator[Fault]], ...] = (
    _words(f"{_ROLLOUT}.mode", ("async",), "was removed"),
    _rollout_name,
    _words(f"{_ROLLOUT}.name", ("vllm", "sglang", "trtllm"), "no such rollout"),
    _words("algorithm.adv_estimator", (*GROUP_ESTIMATORS, *OTHER_ESTIMATORS), "no such estimator"),
    _words(f"{_CORRECTION}.rollout_is", ("token", "sequence"), "no such level"),
    _words(
        f"{_CORRECTION}.rollout_rs",
        CRITERIA,
        "no such criterion",
        {"geometric": "seq_mean_k1", "sequence": "seq_sum_k1", "token": "token_k1"},
    ),
    _managers,
    _strategies,
    _files,
    _batches,
    _filter_metric,
)
"""Checks of values that verl makes late, or at once; each yields its faults."""


def value_faults(config: DictConfig) -> list[Fault]:
    """Return the faults of a composed configuration's values."""
    own_modules = _get(config, f"{_A}.model.external_lib")
    found = [fault for check in VALUES for fault in check(config)]
    return [one for one in found if not (own_modules and one[0] == "algorithm.adv_estimator")]


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
    values = [*value_faults(config), *_coding(config)]
    faults = {key: (effect, why, line) for key, effect, why, line in values}
    found = [_found(text, base, config, refusals.get(text, ""), faults) for text in given]
    keys = {one.key for one in found}
    found = [_without_repeats(one, keys) for one in found]
    missing = [
        Found(key=key, given="", effect=Effect.missing, why=why, write=line)
        for key, (_, why, line) in faults.items()
        if key not in keys
    ]
    return [*found, *missing]


def _without_repeats(one: Found, given: set[str]) -> Found:
    """Leave a key out if the command sets the one to write already."""
    new = one.write.lstrip("+").partition("=")[0]
    if new != one.key and new in given:
        return replace(one, write=LEAVE_OUT, here=LEAVE_OUT)
    return one


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
    if config is None:
        return
    for key in config:
        if key not in ("defaults", "hydra"):
            yield from _leaves(str(key), config._get_node(key))


def _leaves(key: str, node: Any) -> Iterator[str]:
    if OmegaConf.is_dict(node) and len(node):
        for name in node:
            yield from _leaves(f"{key}.{name}", node._get_node(name))
        return
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
        return Found(key=key, given=text, effect=Effect.taken)
    effect, why = effect_of(key, base, config, known)
    if effect in (Effect.taken, Effect.off) and key in faults:
        effect, why, line = faults[key]
        return Found(key=key, given=text, effect=effect, why=why, write=line, here=line)
    if effect in (Effect.taken, Effect.off):
        return Found(key=key, given=text, effect=effect, why=why)
    if known is not None and (known.why or known.write):
        return _advised(key, text, effect, known.why or why, known)
    return Found(key=key, given=text, effect=effect, why=why, write=LEAVE_OUT, here=LEAVE_OUT)


def _advised(key: str, text: str, effect: Effect, why: str, known: Advice) -> Found:
    write, here = known.write or LEAVE_OUT, known.here or LEAVE_OUT
    return Found(key=key, given=text, effect=effect, why=why, write=write, here=here)


def _refused(text: str, base: DictConfig, refusal: str, known: Advice | None) -> Found:
    bare = text.lstrip("+~")
    key = bare.partition("=")[0]
    if refusal != "no such key":  # it exists already, or its value cannot be read
        write = bare if tree.has(base, key) and text.startswith("+") else LEAVE_OUT
        if known is not None and known.unread:
            return _advised(key, text, Effect.refused, refusal, known)
        return Found(
            key=key, given=text, effect=Effect.refused, why=refusal, write=write, here=write
        )
    if known is not None:
        return _advised(key, text, Effect.refused, known.why or refusal, known)
    if addable(key, base):
        write = f"+{bare}"
        why = "the key is read, but verl's tree lacks it"
        return Found(key=key, given=text, effect=Effect.refused, why=why, write=write, here=write)
    near = nearest(key, leaves(base))
    why = f"{refusal}; did you mean {near}?" if near else f"{refusal} in verl {tree.version()}"
    return Found(
        key=key, given=text, effect=Effect.refused, why=why, write=LEAVE_OUT, here=LEAVE_OUT
    )


def addable(key: str, base: DictConfig) -> bool:
    """Return whether a key that the tree lacks has an effect once `+` adds it."""
    if is_read(key) or tree.is_open(base, key):
        return True
    return any(map(key.startswith, CONVERTED)) and not tree.unknown_field(base, key)


def effect_of(
    key: str, base: DictConfig, config: DictConfig, known: Advice | None
) -> tuple[Effect, str]:
    """Return the effect of an override that Hydra accepts."""
    if known is not None and known.unread:
        return Effect.ignored, f"nobody reads it in verl {tree.version()}"
    if warned := _warned(key, config):
        return Effect.warned, warned
    for prefix, (on, why) in SWITCHES.items():
        if key.startswith(prefix) and key not in _THEMSELVES and not on(config):
            return Effect.off, why
    if unread := _unread(key, config):
        return Effect.ignored, unread
    if tree.has(base, key) or is_read(key) or tree.is_open(base, key):
        return Effect.taken, ""
    for prefix, effect in CONVERTED.items():
        if key.startswith(prefix):
            if tree.unknown_field(base, key):
                return effect, f"no such field in verl {tree.version()}: a TypeError"
            return Effect.taken, ""
    if key.startswith("data.") and _get(config, "data.custom_cls.path"):
        return Effect.taken, "read by data.custom_cls, if at all"
    return Effect.ignored, f"no such key in verl {tree.version()}, and nobody reads what + adds"


def _unread(key: str, config: DictConfig) -> str:
    """Return why a key has no effect beside other keys; empty if it has one."""
    ours = _get(config, f"{_MANAGER}.name") == "CodeRewardManager"
    in_own_recipe = (
        _get(config, f"{_MANAGER}.module.path") == "pkg://coding_model_project.verl_reward"
    )
    if key.startswith("coding.") or key == "coding":
        return "" if ours else f"read by {_MANAGER}.name=CodeRewardManager only"
    if key.startswith("reward.reward_kwargs."):
        manager, source = (_get(config, f"{_MANAGER}.{name}") for name in ("name", "source"))
        name = key.split(".")[2]
        if ours or (source == "register" and (manager != "dapo" or name not in _OF_DAPO)):
            return f"read by {_MANAGER}.name=dapo only ({', '.join(_OF_DAPO)})"
    if key == f"{_ACTOR}.clip_ratio":
        return f"{_ACTOR}.clip_ratio_low and clip_ratio_high win, which have defaults"
    if ours and not in_own_recipe and key.startswith(OF_OTHER_MANAGERS):
        return "CodeRewardManager judges by itself"
    url = _get(config, "reward.sandbox_fusion.url")
    if key.startswith("reward.sandbox_fusion.") and _get(
        config, "reward.custom_reward_function.path"
    ):
        return "goes to verl's own scorer only, not to reward.custom_reward_function" if url else ""
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
    mode = _get(config, "trainer.v1.trainer_mode")
    by_one = _get(config, f"{groups}.enable") or mode in ("colocate_async", "separate_async")
    if key == "data.gen_batch_size" and by_one and _get(config, key) not in (None, 1):
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


def leaves(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of a configuration that hold values."""
    for name in node:
        child = node._get_node(name)
        if OmegaConf.is_dict(child) and len(child):
            yield from leaves(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
