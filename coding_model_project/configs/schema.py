"""The typed `coding:` subtree of every recipe's configuration; all other keys are verl's own.

Unknown keys and wrong types are refused when the configuration is composed. Each key says what it
means, and `reference` makes docs/configuration.md of that. Not frozen: OmegaConf cannot compose
frozen dataclasses.
"""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.rewards import RewardKind
from coding_model_project.grading.shaping import LengthBonus


def key(default: Any, meaning: str, *, unit: str = "") -> Any:
    """A key of the configuration.

    Args:
        default: a list or dict is copied for each configuration.
        meaning: for the reference, in Markdown.
        unit: of its value, if that is a quantity.
    """
    metadata = {"meaning": meaning, "unit": unit}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class Tier(Enum):
    """Isolation of the embedded sandbox, strongest last."""

    rlimit = "rlimit"
    seccomp = "seccomp"
    namespaces = "namespaces"


@dataclass
class ShapingConfig:
    """All off by default."""

    length_weight: float = key(
        0.0,
        "Multiply a program's reward by `1 + weight·clip(reference/own − 1, 0, cap − 1)`, the lengths in "
        "bytes, the reference the problem's shortest gold solution. 0: off.",
        unit="1",
    )
    length_cap: float = key(
        2.0, "Programs shorter than the reference by more earn no more.", unit="1"
    )
    length_bonus: LengthBonus = key(
        LengthBonus.accepted,
        "Which programs that applies to: `accepted` ones, or `partial`, all by their share of tests "
        "passed (`kind=dense` only), which may put a short wrong program above a long right one.",
    )
    format_weight: float = key(
        0.0,
        "Reward of a completion that is what was asked for, right or wrong: one closed code block and "
        "nothing else, or with `prompt=bare` no fence.",
        unit="1",
    )
    overlong_buffer: int = key(
        0,
        "The last so many tokens of `data.max_response_length` cost ever more of the reward (DAPO's soft "
        "overlong punishment). 0: off.",
        unit="tokens",
    )
    overlong_weight: float = key(1.0, "What a response of the full length loses by that.", unit="1")


@dataclass
class RewardConfig:
    kind: RewardKind = key(
        RewardKind.sparse,
        "What a verdict is worth: `dense` the share of hidden tests passed, `sparse` 1 if all of them "
        "are passed, else 0.",
    )
    check_public: bool = key(
        True,
        "Run the public tests of programs that fail a hidden one, to report the share that passes "
        "what the prompt shows and fails what it hides.",
    )
    shaping: ShapingConfig = field(default_factory=ShapingConfig)


@dataclass
class SandboxConfig:
    name: str = key(
        "embedded",
        "`embedded`, `fusion` for SandboxFusion servers (`sandbox=fusion`), or "
        "`package.module:Class` for a Sandbox of your own.",
    )
    workers: int | None = key(
        None,
        "Programs judged at once, per node, by `embedded`. null: one per CPU core.",
        unit="programs",
    )
    min_tier: Tier = key(
        Tier.seccomp,
        "Refuse to start `embedded` below this isolation; strongest last. Does not apply to `fusion`, "
        "which confines programs as strongly as its servers allow and says how in each verdict.",
    )
    urls: list[str] = key(
        [],
        "SandboxFusion servers for `fusion`, all alike: `coding.sandbox.urls=[http://host:8080]`. "
        "A token they ask for is read from the environment variable `CODING_SANDBOX_TOKEN`.",
    )
    max_concurrency: int = key(
        32,
        "Requests to those servers at once, from each node (there is one judge per node); a request "
        "is a program with all its tests. About four per CPU core of the servers.",
        unit="requests",
    )
    timeout_s: float = key(
        30.0,
        "How much longer than the programs in it may take a request may take, queueing included.",
        unit="s",
    )
    retry_s: float = key(
        180.0,
        "How long a request that a server failed to answer is tried again before its sample counts "
        "as ungradable. Once nothing has worked for so long, further ones are tried once.",
        unit="s",
    )
    max_failure_rate: float = key(
        0.5,
        "A larger share of ungradable samples in a training step stops the run; in the last 200 "
        "programs it stops the judge, and so the run.",
        unit="share",
    )
    kwargs: dict[str, Any] = key(
        {}, "Keyword arguments for a Sandbox of your own: `+coding.sandbox.kwargs.url=http://...`."
    )


class RepairReward(Enum):
    """Which of an episode's attempts is rewarded."""

    final = "final"
    best = "best"


@dataclass
class RepairConfig:
    """Set by `recipes.repair`; `recipes.grpo` has no rounds."""

    rounds: int = key(
        0,
        "How often a program that fails a public test may be repaired: the model is shown that test and "
        "answers again, within the same episode.",
        unit="rounds",
    )
    attempt_tokens: int | None = key(
        None,
        "Longest answer of one attempt. null: an equal share of `data.max_response_length`, which holds "
        "the whole episode, observations included.",
        unit="tokens",
    )
    observation_bytes: int = key(
        600,
        "Longest test and outcome in what the model is shown; longer ones are cut.",
        unit="bytes",
    )
    reward: RepairReward = key(
        RepairReward.final,
        "`final` rewards the last attempt; `best` the one that is worth most after `discount`. What is "
        "reported as accepted is the last one in any case.",
    )
    discount: float = key(
        1.0,
        "For `reward=best`: an attempt's worth is multiplied by this for each repair.",
        unit="1",
    )


@dataclass
class BashConfig:
    """Set by `recipes.harbor`; other recipes' samples are no episodes of the bash agent."""

    turns: int = key(
        0,
        "Commands that the bash agent may give in an episode on a Harbor task. 0: samples are no such "
        "episodes.",
        unit="turns",
    )
    reply_tokens: int | None = key(
        None,
        "Longest reply. null: an equal share of `data.max_response_length`, which holds the whole "
        "episode, observations included.",
        unit="tokens",
    )
    command_s: float = key(
        60.0, "How long one command may take; the model is told that it was killed.", unit="s"
    )
    total_s: float = key(
        600.0,
        "How long an episode may take, replies included; then the verifier judges what is there. A "
        "task's own `[agent] timeout_sec` applies too.",
        unit="s",
    )
    output_bytes: int = key(
        4096, "Most of a command's output that the model is shown: beginning and end.", unit="bytes"
    )
    rooms: int = key(
        64,
        "Episodes at once, each in an environment of its own, in each of verl's "
        "`actor_rollout_ref.rollout.agent.num_workers`.",
        unit="rooms",
    )


@dataclass
class TinyCodeConfig:
    seed: int = key(0, "Seed of the task generator: fixed, so that every run has the same tasks.")
    sft_demonstrations: int = key(
        200, "Verified demonstrations for SFT, all of the easy levels 1-2.", unit="demonstrations"
    )


@dataclass
class CheckpointsConfig:
    url: str | None = key(
        None,
        "Any fsspec URL (`s3://...`, `gs://...`, `file://...`) to copy checkpoints to in the "
        "background. null: they stay in the run's folder only.",
    )
    keep: int = key(3, "Complete checkpoints kept there.", unit="checkpoints")


@dataclass
class RolloutsConfig:
    every: int = key(
        1,
        "Steps between those whose samples are kept in rollouts.jsonl; 0 keeps none.",
        unit="steps",
    )
    samples: int = key(
        8, "Samples per step shown in W&B and TensorBoard; 0 shows none.", unit="samples"
    )
    samples_every: int = key(5, "Steps between those tables.", unit="steps")
    trace_every: int = key(10, "Steps between timing traces; 0 writes none.", unit="steps")


class DPOLoss(Enum):
    """What a preference pair costs (`verl_ext.dpo.dpo_loss`)."""

    sigmoid = "sigmoid"
    ipo = "ipo"
    cdpo = "cdpo"


class TooLong(Enum):
    """What to do with a pair that has more tokens than `data.max_length`."""

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
        "The embedded task set to make in `coding.data_dir` if it is missing, `tinycode` or "
        "`tinyshell`; null for your own files.",
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
    reward: RewardConfig = field(default_factory=RewardConfig)
    repair: RepairConfig = field(default_factory=RepairConfig)
    bash: BashConfig = field(default_factory=BashConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    tinycode: TinyCodeConfig = field(default_factory=TinyCodeConfig)
    checkpoints: CheckpointsConfig = field(default_factory=CheckpointsConfig)
    rollouts: RolloutsConfig = field(default_factory=RolloutsConfig)
    weight_sync_timeout_s: float = key(
        600.0,
        "A weight sync to the rollout that takes longer has failed: stop instead of hanging.",
        unit="s",
    )
    min_memory_gb: float = key(0.0, "Free memory needed to start; 0 does not ask.", unit="GiB")


class EvaluationMode(Enum):
    """What generates in an evaluation."""

    simple = "simple"
    verl = "verl"


class TokenLimitField(Enum):
    """The field of a request that holds the longest completion."""

    max_tokens = "max_tokens"
    max_completion_tokens = "max_completion_tokens"


@dataclass
class EvaluationConfig:
    """Of `recipes.baseline` only."""

    model: str = key(
        "???",
        "The model: a folder or a hub name; with `base_url`, the name it is served by.",
    )
    datasets: list[str] = key(
        ["tinycode_test"],
        "Data sets by name (`humaneval`, `mbpp_reg`, `codecontests_valid`), as `NAME=PATH`, or as the "
        "path of a file of problems.",
    )
    data_dir: str | None = key(
        None,
        "Where to look for data sets by name. null: the environment variable `CODING_DATA_DIR`, else "
        "`./data`.",
    )
    protocol: str = key(
        "greedy",
        "How is sampled: `greedy` (EVAL@1), `sampled` (EVAL@k: 16 samples) or `budget` (EVAL@budget: "
        "32 samples). The next four keys change it, and with it the hash that is compared.",
    )
    n: int | None = key(None, "Samples per problem. null: the protocol's.", unit="samples")
    temperature: float | None = key(
        None, "Sampling temperature; 0 is greedy. null: the protocol's.", unit="1"
    )
    top_p: float | None = key(
        None, "Sample from the likeliest tokens of this mass. null: the protocol's.", unit="share"
    )
    max_tokens: int | None = key(None, "Longest completion. null: the protocol's.", unit="tokens")
    system_prompt: str | None = key(
        None, "System message before each problem, part of the hash. null: none is sent."
    )
    repair_rounds: int = key(
        0,
        "How often an answer that fails a public test may be repaired within its sample; its tokens and "
        "judge-seconds are those of all its attempts. How much the model is shown: "
        "`coding.repair.observation_bytes`.",
        unit="rounds",
    )
    stop_early: bool = key(
        False,
        "Judge a program until its first failing test only: much faster where problems have many slow "
        "tests, but there is no pass ratio.",
    )
    limit: int | None = key(None, "Only the first problems of each data set.", unit="problems")
    max_tests: int | None = key(
        None, "Judge by at most this many hidden tests of each problem.", unit="tests"
    )
    mode: EvaluationMode = key(
        EvaluationMode.simple,
        "What generates: `simple` is vLLM in this process, or the server at `base_url`; `verl` is "
        "verl's standalone rollout.",
    )
    base_url: str | None = key(
        None,
        "An OpenAI-compatible server, such as `http://localhost:8000/v1`. With one, `recipes.baseline` "
        "has the defaults of chat models on any hardware: `coding.prompt=fenced` and the protocol's "
        "`max_tokens`.",
    )
    api_key_env: str = key(
        "OPENAI_API_KEY", "Environment variable that holds the key for that server."
    )
    send_seeds: bool = key(
        True, "Send that server each sample's seed; false for one that refuses the field."
    )
    token_limit_field: TokenLimitField = key(
        TokenLimitField.max_tokens,
        "Field of the request that holds `max_tokens`: hosted reasoning models take "
        "`max_completion_tokens` only.",
    )
    extra_body: dict[str, Any] = key(
        {},
        "More fields of each request to that server: `+coding.evaluation.extra_body.top_k=20`; null "
        "leaves a field out (`temperature`). Part of the hash.",
    )
    timeout_s: float = key(600.0, "How long that server may take for an answer.", unit="s")
    retry_s: float = key(
        300.0,
        "How long a request that it failed to answer is tried again before the evaluation ends, to be "
        "resumed.",
        unit="s",
    )
    concurrency: int | None = key(
        None, "Requests at once. null: 256, or 32 to a server.", unit="requests"
    )
    max_model_len: int | None = key(
        None, "Tokens of prompt and completion together. null: the model's limit.", unit="tokens"
    )
    dtype: str = key("auto", "Of the model's weights in vLLM: `auto`, `float32`, `bfloat16`.")
    shard: str | None = key(
        None, "Only a part of the problems: `0/4` is the first of four parts. null: all."
    )
    wandb: bool = key(
        False, "Log metrics and a table of samples to W&B (offline unless `WANDB_MODE` says else)."
    )


@dataclass
class BaselineConfig(CodingConfig):
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)


@dataclass
class PreferenceConfig(CodingConfig):
    dpo: DPOConfig = field(default_factory=DPOConfig)


ROOTS = (CodingConfig, BaselineConfig, PreferenceConfig)
"""What the `coding:` subtree of a recipe may be."""


def register() -> None:
    """Make the schemas and the resolver of the recipes' configurations known to Hydra."""
    OmegaConf.register_new_resolver("with_server", _with_server, replace=True)
    store = ConfigStore.instance()
    store.store(name="coding_schema", node={"coding": CodingConfig}, package="_global_")
    store.store(name="baseline_schema", node={"coding": BaselineConfig}, package="_global_")
    store.store(name="dpo_schema", node={"coding": PreferenceConfig}, package="_global_")


def _with_server(served: Any, local: Any, *, _root_: DictConfig) -> Any:
    """`${with_server:A,B}`: A in an evaluation of a server's model, else B."""
    return local if OmegaConf.select(_root_, "coding.evaluation.base_url") is None else served
