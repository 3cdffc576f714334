"""The typed `coding:` subtree of every recipe's configuration; all other keys are verl's own.

Each room owns the dataclass of its keys; here they are put together, with what concerns a training as
a whole. Unknown keys and wrong types are refused when the configuration is composed. Each key says what
it means, and `reference` makes docs/configuration.md of that. Not frozen: OmegaConf cannot compose
frozen dataclasses.
"""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from coding_model_project.config_key import key
from coding_model_project.configs.training import TrainingConfig, TrainingMode, staleness_of
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


class DPOLoss(StrEnum):
    """The loss of a preference pair (`verl_ext.dpo.dpo_loss`)."""

    sigmoid = "sigmoid"
    ipo = "ipo"
    cdpo = "cdpo"


class TooLong(StrEnum):
    """The treatment of a pair that has more tokens than `data.max_length`."""

    set_aside = "set_aside"
    error = "error"


@dataclass
class DPOConfig:
    """Of `recipes.dpo` only."""

    loss: DPOLoss = key(
        DPOLoss.sigmoid,
        "`sigmoid` (Rafailov et al. 2023), `cdpo` for pairs that may be labelled wrongly (Mitchell "
        "2023), or `ipo` (Azar et al. 2023), which aims at a margin instead of an ever larger one.",
    )
    beta: float = key(
        0.1,
        "Strength of the hold on the reference, which is the starting model. Of `ipo`: the margin per "
        "token that is aimed at is 1/(2β).",
        unit="1",
    )
    label_smoothing: float = key(
        0.0, "Share of pairs taken to be labelled wrongly, below 0.5; of `cdpo` only.", unit="share"
    )
    too_long: TooLong = key(
        TooLong.set_aside,
        "A pair with a side over `data.max_length` tokens: `set_aside` and counted, or an `error`. "
        "None is cut.",
    )
    cache_dir: str = key(
        "${coding.data_dir}/reference",
        "Where the reference's log-probabilities are kept, by a hash of model, pairs and tokens: runs "
        "that differ in other things read them.",
    )


@dataclass
class CodingConfig:
    seed: int = key(1, "Seeds data order, sampling and training.")
    run_dir: str = key("???", "The run's folder: configuration, metrics, checkpoints.")
    force: bool = key(False, "Go on in a run's folder although the configuration has changed.")
    dataset: str | None = key(
        "tinycode",
        "The embedded task set to make in `coding.data_dir` if it is missing, `tinycode`, `tinymix` "
        "(programs and arithmetic), `tinygolf` (functions as Harbor tasks) or `tinyshell`; null for your "
        "own files.",
    )
    data_dir: str = key(
        "data/tinycode", "Where data sets and starting models are kept between runs."
    )
    problems: list[str] = key(
        ["${coding.data_dir}/problems.jsonl"],
        "Files of problems: training rows name a problem's id, the tests lie here once.",
    )
    prompt: PromptStyle = key(
        PromptStyle.fenced,
        "What a prompt asks for: `bare` the program itself (the embedded tiny model), `fenced` a "
        "Markdown code block (instruction-tuned models).",
    )
    mode: TrainingMode = key(
        TrainingMode.sync,
        "Of GRPO: `sync` generates, then trains; `colocate_async` goes on judging and working on "
        "episodes while it trains; `separate_async` also generates meanwhile, on devices of its own "
        "(`actor_rollout_ref.rollout.nnodes`). See [asynchronous training](async.md).",
    )
    max_staleness: int | None = key(
        None,
        "Of the asynchronous modes: samples whose weights are more versions old are dropped, not trained "
        "on. null: 1; `sync` is always 0.",
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
        "A weight sync to the rollout that takes longer has failed: stop instead of hanging.",
        unit="s",
    )
    min_memory_gb: float = key(0.0, "Free memory needed to start; 0 does not ask.", unit="GiB")


@dataclass
class BaselineConfig(CodingConfig):
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)


@dataclass
class PreferenceConfig(CodingConfig):
    dpo: DPOConfig = field(default_factory=DPOConfig)


ROOTS = (CodingConfig, BaselineConfig, PreferenceConfig)
"""The schemas of a recipe's `coding:` subtree."""


def register() -> None:
    """Make the schemas and the resolver of the recipes' configurations known to Hydra."""
    OmegaConf.register_new_resolver("with_server", _with_server, replace=True)
    OmegaConf.register_new_resolver("with_tools", _with_tools, replace=True)
    OmegaConf.register_new_resolver("in_mode", _in_mode, replace=True)
    OmegaConf.register_new_resolver("off_policy", _off_policy, replace=True)
    OmegaConf.register_new_resolver("versions", _versions, replace=True)
    OmegaConf.register_new_resolver("updates", _updates, replace=True)
    store = ConfigStore.instance()
    store.store(name="coding_schema", node={"coding": CodingConfig}, package="_global_")
    store.store(name="baseline_schema", node={"coding": BaselineConfig}, package="_global_")
    store.store(name="dpo_schema", node={"coding": PreferenceConfig}, package="_global_")


def _with_server(served: Any, local: Any, *, _root_: DictConfig) -> Any:
    """`${with_server:A,B}`: A in an evaluation of a server's model, else B."""
    return local if OmegaConf.select(_root_, "coding.evaluation.base_url") is None else served


def _with_tools(tools: Any, block: Any, *, _root_: DictConfig) -> Any:
    """`${with_tools:A,B}`: A where the bash agent's commands are calls of a tool, else B."""
    return tools if OmegaConf.select(_root_, "coding.bash.calls") == Calls.tools else block


def _in_mode(mode: str, then: Any, otherwise: Any, *, _root_: DictConfig) -> Any:
    """`${in_mode:MODE,A,B}`: A where `coding.mode` is MODE, else B."""
    return then if OmegaConf.select(_root_, "coding.mode") == mode else otherwise


def _off_policy(then: Any, otherwise: Any, *, _root_: DictConfig) -> Any:
    """`${off_policy:A,B}`: A where samples may be older than the weights that train on them, else B."""
    return then if _staleness(_root_) > 0 else otherwise


def _versions(*, _root_: DictConfig) -> int:
    """`${versions:}`: the versions of the weights that a sample may be of, the newest included."""
    return _staleness(_root_) + 1


def _updates(*, _root_: DictConfig) -> int:
    """`${updates:}`: mini-batches of a step's samples."""
    mini = OmegaConf.select(_root_, "actor_rollout_ref.actor.ppo_mini_batch_size")
    return max(1, OmegaConf.select(_root_, "data.train_batch_size") // mini)


def _staleness(root: DictConfig) -> int:
    mode = TrainingMode(OmegaConf.select(root, "coding.mode"))
    return staleness_of(mode, OmegaConf.select(root, "coding.max_staleness"))
