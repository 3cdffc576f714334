"""`coding.evaluation`: an evaluation's model, data sets, protocol and server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coding_model_project.config_key import Option, key, key_and_option
from coding_model_project.grading.readings import CountedBy


class EvaluationMode(StrEnum):
    """The generator of an evaluation."""

    simple = "simple"
    verl = "verl"


class Cluster(StrEnum):
    """A cluster on which a command can run."""

    ray = "ray"


class TokenLimitField(StrEnum):
    """The request field for the maximum completion length."""

    max_tokens = "max_tokens"
    max_completion_tokens = "max_completion_tokens"


@dataclass
class EvaluationConfig:
    """Keys of `recipes.baseline`; those with an option are also `eval run`'s."""

    model: str = key_and_option(
        "???",
        "Evaluate this model: a folder, a Hub name or, with `base_url`, its name on the server.",
        required=True,
    )
    datasets: list[str] = key(
        ["tinycode_test"],
        "Data sets: names (`humaneval`, `mbpp_reg`, `codecontests_valid`), `NAME=PATH`, or paths of "
        "problem files.",
        option=Option(
            "Load this data set, by name or from its file, folder or URL; repeatable.",
            "--dataset",
            metavar="NAME[=PATH]",
            required=True,
        ),
    )
    data_dir: str | None = key_and_option(
        None,
        "Look here for named data sets. null: `$CODING_DATA_DIR` or `./data`.",
        metavar="<path>",
    )
    protocol: str = key_and_option(
        "greedy",
        "Sample by this protocol. `greedy` (EVAL@1): 1 sample at temperature 0; `sampled` (EVAL@k): 16 "
        "samples, pass@1 to pass@16; `budget` (EVAL@budget): 32 samples, also pass rate by tokens and "
        "judge-seconds. The keys from `n` to `system_prompt` override its settings and change the "
        "protocol hash.",
    )
    n: int | None = key_and_option(
        None, "Draw N samples per problem. null: the protocol's.", unit="samples"
    )
    temperature: float | None = key_and_option(
        None, "Sample at this temperature; 0 is greedy. null: the protocol's.", unit="1"
    )
    top_p: float | None = key_and_option(
        None, "Sample from the nucleus of this probability. null: the protocol's.", unit="share"
    )
    max_tokens: int | None = key_and_option(
        None,
        "Cut a completion off after N tokens, reasoning included. null: the protocol's, 2048.",
        unit="tokens",
    )
    profile: str | None = key_and_option(
        None,
        "Sample as a model's authors recommend: `qwen3-thinking`, `qwen3-instruct`, `deepseek-r1`, or a "
        "YAML file with keys of `coding.evaluation`. Other keys that are set override it. null: none.",
        metavar="NAME|FILE",
    )
    top_k: int | None = key_and_option(
        None,
        "Sample from the N likeliest tokens; -1 for all. null, for this and the next four keys: the "
        "server's default; disabled for vLLM in this process.",
        unit="tokens",
    )
    min_p: float | None = key_and_option(
        None, "Drop tokens below this share of the likeliest token's probability.", unit="share"
    )
    presence_penalty: float | None = key_and_option(
        None, "Penalise tokens that have already occurred, -2 to 2.", unit="1"
    )
    frequency_penalty: float | None = key_and_option(
        None, "Penalise tokens by how often they have occurred, -2 to 2.", unit="1"
    )
    repetition_penalty: float | None = key_and_option(
        None, "Divide the likelihood of repeated tokens by this; 1 disables it.", unit="1"
    )
    stop: list[str] = key_and_option([], "Stop a completion before this text, or one of several.")
    chat_template_kwargs: dict[str, Any] = key(
        {},
        "Variables of the model's chat template: "
        "`+coding.evaluation.chat_template_kwargs.enable_thinking=false`. Variables that the "
        "template does not use are refused if the template can be read.",
        option=Option(
            "Set chat template variables, such as '{\"enable_thinking\": false}'.", metavar="JSON"
        ),
    )
    system_prompt: str | None = key_and_option(
        None,
        "Send this system message before each problem; it is in the protocol hash. null: none.",
    )
    repair_rounds: int = key_and_option(
        0,
        "Let the model repair an answer that fails a public test, up to N times within a sample, whose "
        "tokens and judge-seconds include all attempts. `coding.repair.observation_bytes` limits the "
        "observation.",
        unit="rounds",
        min=0,
    )
    stop_early: bool = key_and_option(
        False,
        "Stop at a program's first failing test: much faster for problems with many slow tests, but "
        "gives no pass ratio.",
    )
    rule: CountedBy = key_and_option(
        CountedBy.publisher,
        "Rule that decides what counts as accepted where a data set's publisher has another than this "
        "judge. Both readings are reported.",
    )
    from_date: str | None = key_and_option(
        None,
        "Use only problems published on or after this day: `2024-08-01`. null: all.",
        name="--from",
        metavar="DAY",
    )
    to_date: str | None = key_and_option(
        None,
        "Use only problems published on or before this day. null: all.",
        name="--to",
        metavar="DAY",
    )
    cutoff: str | None = key_and_option(
        None,
        "Report problems from before the cutoff day of the model's training data and from it on "
        "separately. null: disabled.",
        metavar="DAY",
    )
    split: str | None = key_and_option(
        None,
        "Load only this split; also the split of a file whose name and rows name none. null: all.",
    )
    limit: int | None = key_and_option(
        None, "Use only the first N problems of each data set. null: all.", unit="problems", min=1
    )
    max_tests: int | None = key_and_option(
        None, "Keep at most N hidden tests per problem. null: all.", unit="tests", min=1
    )
    columns: dict[str, str] = key(
        {},
        "Columns of the data sets' files for fields with other names there, as `--map`: "
        "`+coding.evaluation.columns.statement=question`.",
        option=Option(
            "Read this field from that column of the file, such as statement=question; repeatable.",
            "--map",
            metavar="FIELD=COLUMN",
        ),
    )
    mode: EvaluationMode = key_and_option(
        EvaluationMode.simple,
        "Generate with vLLM in this process or the server at `base_url` (`simple`), or with verl's "
        "standalone rollout (`verl`).",
    )
    cluster: Cluster | None = key_and_option(
        None,
        "Judge on all nodes of a Ray cluster (`ray`), and with `mode=verl` generate there: "
        "`docs/evaluate-on-a-cluster.md`. null: this machine only.",
    )
    ray_address: str | None = key_and_option(
        None,
        "Connect to the Ray head at this `HOST:PORT`. null: `$RAY_ADDRESS`.",
        metavar="HOST:PORT",
    )
    base_url: str | None = key_and_option(
        None,
        "Query this OpenAI-compatible server, such as `http://localhost:8000/v1`. If set, "
        "`recipes.baseline` has the defaults of chat models on any hardware: `coding.prompt=fenced` and "
        "the protocol's `max_tokens`.",
    )
    api_key_env: str = key_and_option(
        "OPENAI_API_KEY", "Read the server's API key from this environment variable."
    )
    send_seeds: bool = key_and_option(
        True, "Send the server a seed per sample; some servers reject it."
    )
    token_limit_field: TokenLimitField = key_and_option(
        TokenLimitField.max_tokens,
        "Send `max_tokens` in this field of a request; hosted reasoning models accept only "
        "`max_completion_tokens`.",
    )
    extra_body: dict[str, Any] = key(
        {},
        "Extra fields of each request to the server: "
        "`+coding.evaluation.extra_body.reasoning_effort=low`; null removes a field (`temperature`). "
        "Included in the protocol hash.",
        option=Option(
            'Add fields to each request, such as \'{"reasoning_effort": "low"}\'; null removes a '
            "field: '{\"temperature\": null}'.",
            metavar="JSON",
        ),
    )
    timeout_s: float = key_and_option(
        600.0, "Time a request to the server out after N seconds.", unit="s", min=0.1
    )
    retry_s: float = key_and_option(
        300.0,
        "Retry a request for up to N seconds, then end the evaluation; the same command resumes.",
        unit="s",
        min=0,
    )
    concurrency: int | None = key_and_option(
        None, "Send N requests at once. null: 32 to a server, else 256.", unit="requests", min=1
    )
    max_model_len: int | None = key_and_option(
        None,
        "Limit prompt plus completion to N tokens, for vLLM in this process. null: the model's limit.",
        unit="tokens",
    )
    dtype: str = key_and_option(
        "auto", "Load weights as `auto`, `float32` or `bfloat16`, for vLLM in this process."
    )
    shard: str | None = key_and_option(
        None, "Evaluate one shard of the problems: `0/4` is the first of four. null: all problems."
    )
    wandb: bool = key_and_option(
        False, "Log metrics and a table of samples to W&B (offline unless `WANDB_MODE` is set)."
    )
