"""The typed `coding:` subtree of every recipe's configuration; all other keys are verl's own.

Each room owns the dataclass of its keys; this module combines them, and adds the keys of a training as a
whole. Composition rejects unknown keys and wrong types. Each key states its meaning, from which
`reference` generates docs/configuration.md. The dataclasses are not frozen, because OmegaConf cannot
compose frozen ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, SCMode
from omegaconf.errors import (
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from coding_model_project.config_key import key
from coding_model_project.episodes.bash import BashConfig, Calls
from coding_model_project.episodes.repair import RepairConfig
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.rewards import RewardConfig
from coding_model_project.harbor.harbor_config import AgentConfig, HarborConfig
from coding_model_project.runs.runs_config import CheckpointsConfig, MirrorConfig, RolloutsConfig
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.synthetic import TinyCodeConfig

if TYPE_CHECKING:
    from coding_model_project.evaluation.settings import Settings


class TrainingMode(StrEnum):
    """The schedule of generation relative to training."""

    sync = "sync"
    colocate_async = "colocate_async"
    separate_async = "separate_async"

    @property
    def asynchronous(self) -> bool:
        """True if samples may be older than the weights that train on them."""
        return self is not TrainingMode.sync


class TrainingSampler(StrEnum):
    """The order in which training rows are drawn."""

    uniform = "uniform"
    online = "online"


@dataclass
class GuardsConfig:
    """Bounds on a step's metrics. A run that stays outside a bound ends."""

    max_grad_norm: float | None = key(
        None, "Upper bound of `actor/grad_norm`, which is measured before clipping.", unit="1"
    )
    min_entropy: float | None = key(
        None,
        "Lower bound of `actor/entropy`; below it, the policy has stopped exploring.",
        unit="nats",
    )
    max_entropy: float | None = key(
        None, "Upper bound of `actor/entropy`; above it, the policy is diverging.", unit="nats"
    )
    max_mismatch: float | None = key(
        None,
        "Upper bound of `rollout/mismatch`, the mean difference of a token's log-probability between "
        "rollout and trainer; one step above it ends the run. null: 0.01 in single precision, 0.1 in 16 "
        "bits, 0.3 with a quantised rollout; ten times that in asynchronous modes.",
        unit="nats",
    )
    patience: int = key(
        3, "Consecutive steps outside a bound after which the run ends.", unit="steps"
    )


@dataclass
class TrainingConfig:
    sampler: TrainingSampler = key(
        TrainingSampler.uniform,
        "Sampling of training rows: `uniform`, as in verl, or `online`, which prefers problems whose "
        "groups have disagreed so far. A problem that always or never passes teaches nothing.",
    )
    rates: str | None = key(
        None,
        "Initial pass rates for `sampler=online`: a file of `data rates` for these training problems. "
        "null: all problems start equal.",
    )
    mask_truncated: bool = key(
        False,
        "Mask responses that hit `data.max_response_length` in the loss. They are still judged, and "
        "count in their group's mean.",
    )
    max_resampling: float = key(
        0.0,
        "Limit of the prompts that a step resamples to replace groups that agree "
        "(`algorithm.filter_groups`), as a multiple of `data.train_batch_size`. Beyond it, such groups "
        "are kept. 0: no limit, as in verl.",
        unit="1",
    )
    guards: GuardsConfig = field(default_factory=GuardsConfig)


def staleness_of(mode: TrainingMode, asked: int | None) -> int:
    """Return the number of weight versions that a trained sample may lag behind.

    Args:
        asked: `coding.max_staleness`.
    """
    return int(mode.asynchronous) if asked is None else asked


class DPOLoss(StrEnum):
    """The loss of a preference pair (`verl_ext.trainers.dpo_pairs`)."""

    sigmoid = "sigmoid"
    ipo = "ipo"
    cdpo = "cdpo"


@dataclass
class DPOConfig:
    """Keys of `recipes.dpo`."""

    loss: DPOLoss = key(
        DPOLoss.sigmoid,
        "`sigmoid` (Rafailov et al. 2023), `cdpo` for pairs with noisy labels (Mitchell 2023), or `ipo` "
        "(Azar et al. 2023), which aims at a fixed margin instead of an ever larger one.",
    )
    beta: float = key(
        0.1,
        "Strength of the penalty for leaving the reference, which is the starting model. For `ipo`, the "
        "target margin per token is 1/(2β).",
        unit="1",
    )
    label_smoothing: float = key(
        0.0, "Assumed share of mislabelled pairs, below 0.5; for `cdpo` only.", unit="share"
    )


@dataclass
class CodingConfig:
    seed: int = key(1, "Seed of data order, sampling and training.")
    run_dir: str = key("???", "The run's folder, with configuration, metrics and checkpoints.")
    force: bool = key(
        False, "Resume in a run's folder even if configuration, data or model have changed."
    )
    dataset: str | None = key(
        "tinycode",
        "Embedded task set to create in `coding.data_dir` if it is missing: `tinycode`, `tinymix` "
        "(programs and arithmetic), `tinygolf` (functions as Harbor tasks) or `tinyshell`. null: your "
        "own files.",
    )
    data_dir: str = key(
        "data/tinycode", "Folder for data sets and starting models, shared between runs."
    )
    problems: list[str] = key(
        ["${coding.data_dir}/problems.jsonl"],
        "Problem files with the tests. Training rows refer to problems by id.",
    )
    prompt: PromptStyle = key(
        PromptStyle.fenced,
        "Answer format that prompts ask for: `bare` is the program itself (the embedded tiny model), "
        "`fenced` is a Markdown code block (instruction-tuned models).",
    )
    mode: TrainingMode = key(
        TrainingMode.sync,
        "Schedule of GRPO: `sync` generates, then trains; `colocate_async` also judges and continues "
        "episodes while it trains; `separate_async` also generates while it trains, on separate devices "
        "(`actor_rollout_ref.rollout.nnodes`). See [asynchronous training](async.md).",
    )
    max_staleness: int | None = key(
        None,
        "Maximum age of a sample's weights in the asynchronous modes; older samples are dropped. "
        "null: 1. `sync` is always 0.",
        unit="versions",
    )
    reward: RewardConfig = field(default_factory=RewardConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    repair: RepairConfig = field(default_factory=RepairConfig)
    bash: BashConfig = field(default_factory=BashConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    harbor: HarborConfig = field(default_factory=HarborConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    tinycode: TinyCodeConfig = field(default_factory=TinyCodeConfig)
    checkpoints: CheckpointsConfig = field(default_factory=CheckpointsConfig)
    mirror: MirrorConfig = field(default_factory=MirrorConfig)
    rollouts: RolloutsConfig = field(default_factory=RolloutsConfig)
    weight_sync_timeout_s: float = key(
        600.0,
        "Timeout of a weight sync to the rollout; a slower sync ends the run.",
        unit="s",
    )
    min_memory_gb: float | None = key(
        None,
        "Minimum free memory to start; 0 disables the check. null estimates it from the model on CPUs, "
        "and disables the check elsewhere.",
        unit="GiB",
    )


@dataclass
class BaselineConfig(CodingConfig):
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)


@dataclass
class PreferenceConfig(CodingConfig):
    dpo: DPOConfig = field(default_factory=DPOConfig)


ROOTS = (CodingConfig, BaselineConfig, PreferenceConfig)
"""The schemas of a recipe's `coding:` subtree."""


def register() -> None:
    """Register the schemas and resolvers of the recipes' configurations with Hydra and OmegaConf."""
    for name, resolve in _RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolve, replace=True)
    store = ConfigStore.instance()
    if "coding_schema.yaml" in store.repo:
        return  # once: it takes as long as the rest of a composition
    schemas = {"coding": CodingConfig, "baseline": BaselineConfig, "dpo": PreferenceConfig}
    for name, root in schemas.items():
        store.store(name=f"{name}_schema", node={"coding": root}, package="_global_")


_get = OmegaConf.select
_RESOLVERS: dict[str, Callable[..., Any]] = {
    # ${with_server:A,B}: A in an evaluation of a served model, else B
    "with_server": lambda served, local, *, _root_: (
        local if _get(_root_, "coding.evaluation.base_url") is None else served
    ),
    # ${with_tools:A,B}: A if the bash agent's commands are tool calls, else B
    "with_tools": lambda tools, block, *, _root_: (
        tools if _get(_root_, "coding.bash.calls") == Calls.tools else block
    ),
    # ${in_mode:MODE,A,B}: A if `coding.mode` is MODE, else B
    "in_mode": lambda mode, then, otherwise, *, _root_: (
        then if _get(_root_, "coding.mode") == mode else otherwise
    ),
    # ${off_policy:A,B}: A if samples may be older than the trained weights, else B
    "off_policy": lambda then, otherwise, *, _root_: then if mode_of(_root_)[1] > 0 else otherwise,
    # ${versions:}: the number of weight versions allowed in samples, with the newest
    "versions": lambda *, _root_: mode_of(_root_)[1] + 1,
    # ${updates:}: the number of mini-batches in a step
    "updates": lambda *, _root_: max(
        1,
        _get(_root_, "data.train_batch_size")
        // _get(_root_, "actor_rollout_ref.actor.ppo_mini_batch_size"),
    ),
    # ${micro_batch:A,B}: A samples if programs are bare, as the embedded model's, B if fenced, as larger
    # models' are; or the largest number below that divides a mini-batch
    "micro_batch": lambda bare, fenced, *, _root_: _micro_batch(
        _root_, bare if _get(_root_, "coding.prompt") == PromptStyle.bare else fenced
    ),
    # ${sample_tokens:}: the number of tokens of the longest sample
    "sample_tokens": lambda *, _root_: sum(
        _get(_root_, f"data.max_{part}_length") for part in ("prompt", "response")
    ),
}


def _micro_batch(config: DictConfig, most: int) -> int:
    """Return the largest number of samples up to `most` that divides a rank's mini-batch."""
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    samples = actor.ppo_mini_batch_size * rollout.n // ranks
    return next(n for n in range(min(most, max(1, samples)), 0, -1) if samples % n == 0)


def mode_of(config: DictConfig) -> tuple[TrainingMode, int]:
    """Return `coding.mode`, and the number of weight versions that a sample may lag behind."""
    mode = TrainingMode(OmegaConf.select(config, "coding.mode") or TrainingMode.sync)
    return mode, staleness_of(mode, OmegaConf.select(config, "coding.max_staleness"))


# ── the typed object of a composed configuration ─────────────────────────────────────────────────────


def coding_of(config: DictConfig) -> CodingConfig:
    """Return the typed `coding:` subtree, a `BaselineConfig` or `PreferenceConfig` if it has their keys.

    Args:
        config: composed by a recipe, or in plain containers from a run's folder or Ray. Keys that an
            older run lacks get their defaults.

    Raises:
        ConfigError: a key has no value or a wrong one, or an interpolation cannot be resolved.
    """
    given = config.coding
    roots = {"evaluation": BaselineConfig, "dpo": PreferenceConfig}
    root = next((roots[name] for name in roots if name in given), CodingConfig)
    try:
        plain = OmegaConf.to_container(given, resolve=True, enum_to_str=True)
        whole = OmegaConf.merge({"coding": OmegaConf.structured(root)}, {"coding": plain})
        typed = OmegaConf.to_container(whole.coding, structured_config_mode=SCMode.INSTANTIATE)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key}: no value given") from error
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {_refusal(error)}") from error
    return cast(CodingConfig, typed)


def reason(error: BaseException) -> str:
    """Return the reason of an error of OmegaConf or Hydra, without the place that it names."""
    text = " ".join(re.split("full_key|Config search path", str(error))[0].split())
    return "expected a list, such as [VALUE]" if "is not a ListConfig" in text else text


def _refusal(error: OmegaConfBaseException) -> str:
    """Return why the schema refuses a key or value, and what to write."""
    if isinstance(error, ConfigKeyError):
        group, _, name = str(error.full_key).rpartition(".")
        near = get_close_matches(name, map(str, error.parent_node or ()), n=1)
        return f"no such key{f'; did you mean {group}.{near[0]}?' if near else ''}"
    if isinstance(error, ValidationError) and not isinstance(error, InterpolationResolutionError):
        return reason(error)
    return f"{reason(error)}; write \\${{ for ${{ in a text"


class OnUngradable(StrEnum):
    """The end of a sample that could not be judged."""

    drop = "drop"
    """It fails: verl leaves it out of the batch, in its asynchronous modes with all of its group."""
    zero_advantage = "zero_advantage"
    """It stays in the batch with an advantage of 0, and has no part in those of its group."""
    stop = "raise"
    """The run ends."""


def coding_beside(config: DictConfig) -> tuple[CodingConfig, OnUngradable]:
    """Return the typed `coding:` subtree of another program's configuration, where all of it is optional.

    Without `run_dir`, which is then empty, and `problems` there are none; a recipe has defaults.
    `on_ungradable` is a key of such programs only.

    Raises:
        ConfigError: a key is unknown, or a value is wrong.
    """
    given = OmegaConf.select(config, "coding")
    plain = {} if given is None else {name: given._get_node(name) for name in given}
    word = str(plain.pop("on_ungradable", OnUngradable.drop))
    if word not in list(OnUngradable):
        raise ConfigError(f"coding.on_ungradable={word}: expected {', '.join(OnUngradable)}")
    if word == OnUngradable.zero_advantage:
        _check_placeholders(config)
    base: dict[str, Any] = {"run_dir": "", "dataset": None, "problems": []}
    whole = OmegaConf.merge({"coding": base}, {"coding": plain})
    return coding_of(cast(DictConfig, whole)), OnUngradable(word)


def _check_placeholders(config: DictConfig) -> None:
    """Raise ConfigError if anything but the advantages would read the score of a sample without one."""
    keys = "algorithm.filter_groups.enable", "algorithm.use_kl_in_reward", "critic.enable"
    readers = [key for key in keys if OmegaConf.select(config, key)]
    if OmegaConf.select(config, "algorithm.adv_estimator") == "gae":
        readers.append("algorithm.adv_estimator")
    if readers:
        key = readers[0]
        raise ConfigError(
            f"coding.on_ungradable=zero_advantage: {key}={OmegaConf.select(config, key)} would use the "
            "score of a sample that has none: set +coding.on_ungradable=drop"
        )


def evaluation_settings(coding: CodingConfig) -> Settings:
    """Return the settings of an evaluation.

    Raises:
        ConfigError: a value is invalid; the message names the key.
    """
    from coding_model_project.evaluation.settings import Settings
    from coding_model_project.harbor import task_grader

    assert isinstance(coding, BaselineConfig)
    return Settings.of(
        coding.evaluation,
        run_dir=Path(coding.run_dir),
        seed=coding.seed,
        prompt=coding.prompt,
        observation_bytes=coding.repair.observation_bytes,
        sandbox=coding.sandbox,
        force=coding.force,
        tasks=task_grader,
    )


def new_config(coding: Mapping[str, Any], evaluation: Mapping[str, Any]) -> DictConfig:
    """Build a configuration like that of `recipes.baseline`, without Hydra.

    Args:
        coding: values of keys under `coding:`.
        evaluation: values of keys under `coding.evaluation`; None leaves the default.

    Raises:
        ConfigError: the schema rejects a key or value.
    """
    given = {name: value for name, value in evaluation.items() if value is not None}
    try:
        schema = OmegaConf.structured(BaselineConfig)
        return OmegaConf.create(
            {"coding": OmegaConf.merge(schema, dict(coding), {"evaluation": given})}
        )
    except OmegaConfBaseException as error:
        raise ConfigError(f"coding.{error.full_key}: {reason(error)}") from error
