"""The typed `coding:` subtree of every recipe's configuration; all other keys are verl's own.

Unknown keys and wrong types are refused when the configuration is composed. Not frozen: OmegaConf
cannot compose frozen dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hydra.core.config_store import ConfigStore

from coding_model_project.prompts import PromptStyle
from coding_model_project.rewards.outcome import RewardKind


class Tier(Enum):
    """Isolation of the embedded sandbox, strongest last."""

    rlimit = "rlimit"
    seccomp = "seccomp"
    namespaces = "namespaces"


@dataclass
class RewardConfig:
    kind: RewardKind = RewardKind.sparse


@dataclass
class SandboxConfig:
    # "embedded", or "package.module:Class" for a Sandbox of your own.
    name: str = "embedded"
    # Programs judged at once, per node. null: one per CPU core.
    workers: int | None = None
    # Refuse to start below this isolation.
    min_tier: Tier = Tier.seccomp
    # A training step with a larger share of ungradable samples stops the run.
    max_failure_rate: float = 0.5
    # Keyword arguments for a Sandbox of your own: +coding.sandbox.kwargs.url=http://...
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class TinyCodeConfig:
    # Seed of the task generator: fixed, so that every run has the same tasks.
    seed: int = 0
    # Verified demonstrations for SFT, all of the easy levels 1-2.
    sft_demonstrations: int = 200


@dataclass
class CodingConfig:
    # Seeds data order, sampling and training.
    seed: int = 1
    # The run's folder: configuration, metrics, checkpoints.
    run_dir: str = "???"
    # The embedded task set to make in data_dir if it is missing; null for your own files.
    dataset: str | None = "tinycode"
    # Where data sets and starting models are kept between runs.
    data_dir: str = "data/tinycode"
    # Problems by reference: training rows name a problem's id, the tests lie here once.
    problems: list[str] = field(default_factory=lambda: ["${coding.data_dir}/problems.jsonl"])
    prompt: PromptStyle = PromptStyle.fenced
    reward: RewardConfig = field(default_factory=RewardConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    tinycode: TinyCodeConfig = field(default_factory=TinyCodeConfig)
    # A weight sync to the rollout that takes longer has failed: stop instead of hanging.
    weight_sync_timeout_s: float = 600.0
    # Free memory the profile needs to start.
    min_memory_gb: float = 0.0


def register() -> None:
    """Make `coding_schema` known to Hydra; recipes list it in their defaults."""
    ConfigStore.instance().store(
        name="coding_schema", node={"coding": CodingConfig}, package="_global_"
    )
