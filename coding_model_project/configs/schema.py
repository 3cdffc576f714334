"""The typed `coding:` subtree of every recipe's configuration; all other keys are verl's own.

Each room owns the dataclass of its keys; this module combines them, and adds the keys of a training as a
whole. Composition rejects unknown keys and wrong types. Each key states its meaning, from which
`reference` generates docs/configuration.md. The dataclasses are not frozen, because OmegaConf cannot
compose frozen ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from coding_model_project.config_key import key
from coding_model_project.episodes.bash_config import BashConfig
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.episodes.repair_config import RepairConfig
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.reward_config import RewardConfig
from coding_model_project.harbor.agent_config import AgentConfig
from coding_model_project.harbor.integrity import HarborConfig
from coding_model_project.runs.runs_config import CheckpointsConfig, MirrorConfig, RolloutsConfig
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.synthetic.tinycode_config import TinyCodeConfig


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


class TooLong(StrEnum):
    """The treatment of a pair that has more tokens than `data.max_length`."""

    set_aside = "set_aside"
    error = "error"


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
    too_long: TooLong = key(
        TooLong.set_aside,
        "Treatment of a pair with a side over `data.max_length` tokens: `set_aside` drops and counts it, "
        "`error` ends the run. Pairs are never truncated.",
    )
    cache_dir: str = key(
        "${coding.data_dir}/reference",
        "Folder for the reference's log-probabilities, keyed by a hash of model, pairs and tokens. Runs "
        "that differ only in other settings share them.",
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
    OmegaConf.register_new_resolver("with_server", _with_server, replace=True)
    OmegaConf.register_new_resolver("with_tools", _with_tools, replace=True)
    OmegaConf.register_new_resolver("in_mode", _in_mode, replace=True)
    OmegaConf.register_new_resolver("off_policy", _off_policy, replace=True)
    OmegaConf.register_new_resolver("versions", _versions, replace=True)
    OmegaConf.register_new_resolver("updates", _updates, replace=True)
    OmegaConf.register_new_resolver("sample_tokens", _sample_tokens, replace=True)
    store = ConfigStore.instance()
    if "coding_schema.yaml" in store.repo:
        return  # once: it takes as long as the rest of a composition
    store.store(name="coding_schema", node={"coding": CodingConfig}, package="_global_")
    store.store(name="baseline_schema", node={"coding": BaselineConfig}, package="_global_")
    store.store(name="dpo_schema", node={"coding": PreferenceConfig}, package="_global_")


def _with_server(served: Any, local: Any, *, _root_: DictConfig) -> Any:
    """Resolve `${with_server:A,B}`: A in an evaluation of a served model, else B."""
    return local if OmegaConf.select(_root_, "coding.evaluation.base_url") is None else served


def _with_tools(tools: Any, block: Any, *, _root_: DictConfig) -> Any:
    """Resolve `${with_tools:A,B}`: A if the bash agent's commands are tool calls, else B."""
    return tools if OmegaConf.select(_root_, "coding.bash.calls") == Calls.tools else block


def _in_mode(mode: str, then: Any, otherwise: Any, *, _root_: DictConfig) -> Any:
    """Resolve `${in_mode:MODE,A,B}`: A if `coding.mode` is MODE, else B."""
    return then if OmegaConf.select(_root_, "coding.mode") == mode else otherwise


def _off_policy(then: Any, otherwise: Any, *, _root_: DictConfig) -> Any:
    """Resolve `${off_policy:A,B}`: A if samples may be older than the trained weights, else B."""
    return then if _staleness(_root_) > 0 else otherwise


def _versions(*, _root_: DictConfig) -> int:
    """Resolve `${versions:}`: the number of weight versions allowed in samples, with the newest."""
    return _staleness(_root_) + 1


def _updates(*, _root_: DictConfig) -> int:
    """Resolve `${updates:}`: the number of mini-batches in a step."""
    mini = OmegaConf.select(_root_, "actor_rollout_ref.actor.ppo_mini_batch_size")
    return max(1, OmegaConf.select(_root_, "data.train_batch_size") // mini)


def _sample_tokens(*, _root_: DictConfig) -> int:
    """Resolve `${sample_tokens:}`: the number of tokens of the longest sample."""
    return sum(
        OmegaConf.select(_root_, f"data.max_{part}_length") for part in ("prompt", "response")
    )


def _staleness(root: DictConfig) -> int:
    mode = TrainingMode(OmegaConf.select(root, "coding.mode"))
    return staleness_of(mode, OmegaConf.select(root, "coding.max_staleness"))
