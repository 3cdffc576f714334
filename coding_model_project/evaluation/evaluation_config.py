"""`coding.evaluation`: model, data sets, protocol and server of an evaluation."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coding_model_project.config_key import key


class EvaluationMode(StrEnum):
    """What generates in an evaluation."""

    simple = "simple"
    verl = "verl"


class Cluster(StrEnum):
    """Machines that share the work of one command."""

    ray = "ray"


class TokenLimitField(StrEnum):
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
        "32 samples). The keys from `n` to `system_prompt` change it, and with it the hash that is "
        "compared.",
    )
    n: int | None = key(None, "Samples per problem. null: the protocol's.", unit="samples")
    temperature: float | None = key(
        None, "Sampling temperature; 0 is greedy. null: the protocol's.", unit="1"
    )
    top_p: float | None = key(
        None, "Sample from the likeliest tokens of this mass. null: the protocol's.", unit="share"
    )
    max_tokens: int | None = key(
        None,
        "Longest completion, its reasoning included. null: the protocol's.",
        unit="tokens",
    )
    profile: str | None = key(
        None,
        "Sampling that a model's makers advise, by name (`qwen3-thinking`) or as a YAML file of keys of "
        "`coding.evaluation`; keys that are given here go before it. null: none.",
    )
    top_k: int | None = key(
        None,
        "Sample from this many of the likeliest tokens; -1 is all. null, here and in the next four: a "
        "server has its own default, vLLM in this process none.",
        unit="tokens",
    )
    min_p: float | None = key(
        None, "Drop tokens below this share of the likeliest token's probability.", unit="share"
    )
    presence_penalty: float | None = key(
        None, "Subtracted from the logits of tokens that the completion has, -2 to 2.", unit="1"
    )
    frequency_penalty: float | None = key(
        None, "As `presence_penalty`, for each time that the token occurs.", unit="1"
    )
    repetition_penalty: float | None = key(
        None, "Divides the likelihood of tokens that prompt or completion have; 1 is off.", unit="1"
    )
    stop: list[str] = key([], "Texts that end a completion, and are not part of it.")
    chat_template_kwargs: dict[str, Any] = key(
        {},
        "Variables of the model's chat template: "
        "`+coding.evaluation.chat_template_kwargs.enable_thinking=false`. One that the template does "
        "not have is refused where the template can be read.",
    )
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
    from_date: str | None = key(
        None, "Only problems published on this day or later: `2024-08-01`. null: all."
    )
    to_date: str | None = key(None, "Only problems published on this day or earlier. null: all.")
    cutoff: str | None = key(
        None,
        "The end of the model's training data, as a day: rates of problems from before it and from then "
        "on are reported apart. null: they are not.",
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
    cluster: Cluster | None = key(
        None,
        "`ray` judges on all nodes of a Ray cluster, and generates there with `mode=verl`: "
        "`docs/evaluate-on-a-cluster.md`. null: on this machine.",
    )
    ray_address: str | None = key(
        None,
        "That cluster's head, as `HOST:PORT`. null: the environment variable `RAY_ADDRESS`.",
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
        "More fields of each request to that server: "
        "`+coding.evaluation.extra_body.reasoning_effort=low`; null leaves a field out (`temperature`). "
        "Part of the hash.",
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
