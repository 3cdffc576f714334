"""`coding.evaluation`: an evaluation's model, data sets, protocol and server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coding_model_project.config_key import Option, key
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

    model: str = key(
        "???",
        "Model: a folder or a Hub name; with `base_url`, its name on the server.",
        option=Option(
            "Evaluate this model: a folder, a Hub name or, with --base-url, its name on the server.",
            required=True,
        ),
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
    data_dir: str | None = key(
        None,
        "Folder of named data sets. null: the environment variable `CODING_DATA_DIR`, or `./data`.",
        option=Option(
            "Look here for named data sets. Default: $CODING_DATA_DIR or ./data.", metavar="<path>"
        ),
    )
    protocol: str = key(
        "greedy",
        "Sampling protocol: `greedy` (EVAL@1), `sampled` (EVAL@k: 16 samples) or `budget` (EVAL@budget: "
        "32 samples). The keys from `n` to `system_prompt` override its settings and change the "
        "protocol hash.",
        option=Option(
            "Sample by this protocol. greedy: 1 sample at temperature 0; sampled: 16 samples, "
            "pass@1 to pass@16; budget: 32 samples, also pass rate by tokens and judge-seconds."
        ),
    )
    n: int | None = key(
        None,
        "Samples per problem. null: the protocol's.",
        unit="samples",
        option=Option("Draw N samples per problem. Default: the protocol's."),
    )
    temperature: float | None = key(
        None,
        "Sampling temperature; 0 is greedy. null: the protocol's.",
        unit="1",
        option=Option("Sample at this temperature. Default: the protocol's."),
    )
    top_p: float | None = key(
        None,
        "Nucleus sampling probability. null: the protocol's.",
        unit="share",
        option=Option("Sample from the nucleus of this probability. Default: the protocol's."),
    )
    max_tokens: int | None = key(
        None,
        "Maximum completion length, including reasoning. null: the protocol's.",
        unit="tokens",
        option=Option("Cut a completion off after N tokens, reasoning included. Default: 2048."),
    )
    profile: str | None = key(
        None,
        "Sampling recommended by a model's authors: a name (`qwen3-thinking`) or a YAML file with keys "
        "of `coding.evaluation`. Keys set here override it. null: none.",
        option=Option(
            "Sample as a model's authors recommend: qwen3-thinking, qwen3-instruct, deepseek-r1, or "
            "a YAML file with keys named like these options. Explicit options override it.",
            metavar="NAME|FILE",
        ),
    )
    top_k: int | None = key(
        None,
        "Sample from this many of the likeliest tokens; -1 for all. null, for this and the next four "
        "keys: the server's default; disabled for vLLM in this process.",
        unit="tokens",
        option=Option("Sample from the N likeliest tokens; -1 for all."),
    )
    min_p: float | None = key(
        None,
        "Drop tokens below this share of the likeliest token's probability.",
        unit="share",
        option=Option("Drop tokens below this share of the likeliest token's probability."),
    )
    presence_penalty: float | None = key(
        None,
        "Penalty on the logits of tokens already in the completion, -2 to 2.",
        unit="1",
        option=Option("Penalise tokens that have already occurred, -2 to 2."),
    )
    frequency_penalty: float | None = key(
        None,
        "Penalty on logits per occurrence of the token in the completion, -2 to 2.",
        unit="1",
        option=Option("Penalise tokens by how often they have occurred, -2 to 2."),
    )
    repetition_penalty: float | None = key(
        None,
        "Divisor of the likelihood of tokens in the prompt or completion; 1 disables it.",
        unit="1",
        option=Option("Divide the likelihood of repeated tokens by this; 1 disables it."),
    )
    stop: list[str] = key(
        [],
        "Texts that end a completion; they are excluded from it.",
        option=Option("Stop a completion before this text; repeatable."),
    )
    chat_template_kwargs: dict[str, Any] = key(
        {},
        "Variables of the model's chat template: "
        "`+coding.evaluation.chat_template_kwargs.enable_thinking=false`. Variables that the "
        "template does not use are refused if the template can be read.",
        option=Option(
            "Set chat template variables, such as '{\"enable_thinking\": false}'.", metavar="JSON"
        ),
    )
    system_prompt: str | None = key(
        None,
        "System message before each problem, included in the protocol hash. null: none.",
        option=Option("Send this system message before each problem. Default: none."),
    )
    repair_rounds: int = key(
        0,
        "Maximum repairs, within a sample, of an answer that fails a public test. The sample's tokens "
        "and judge-seconds include all attempts. `coding.repair.observation_bytes` limits the "
        "observation.",
        unit="rounds",
        option=Option(
            "Let the model repair an answer that fails a public test, up to N times.", min=0
        ),
    )
    stop_early: bool = key(
        False,
        "Stop judging a program at its first failing test: much faster for problems with many slow "
        "tests, but gives no pass ratio.",
        option=Option("Stop at a program's first failing test."),
    )
    rule: CountedBy = key(
        CountedBy.publisher,
        "Rule that decides what counts as accepted where a data set's publisher has another than this "
        "judge: `publisher` or `ours`. Both readings are reported.",
        option=Option(
            "Rule that decides what counts as accepted where a data set's publisher has another than "
            "this judge. Both readings are reported."
        ),
    )
    from_date: str | None = key(
        None,
        "Use only problems published on or after this day: `2024-08-01`. null: all.",
        option=Option("Use only problems published on or after this day.", "--from", metavar="DAY"),
    )
    to_date: str | None = key(
        None,
        "Use only problems published on or before this day. null: all.",
        option=Option("Use only problems published on or before this day.", "--to", metavar="DAY"),
    )
    cutoff: str | None = key(
        None,
        "Cutoff day of the model's training data: rates of problems from before it and from it on are "
        "reported separately. null: disabled.",
        option=Option(
            "Report problems from before and after the model's training data cutoff separately.",
            metavar="DAY",
        ),
    )
    split: str | None = key(
        None,
        "Load only this split; also the split of a file that names none. null: all.",
        option=Option(
            "Load only this split; also the split of a file whose name and rows name none."
        ),
    )
    limit: int | None = key(
        None,
        "Number of first problems of each data set to use. null: all.",
        unit="problems",
        option=Option("Use only the first N problems.", min=1),
    )
    max_tests: int | None = key(
        None,
        "Maximum hidden tests per problem. null: all.",
        unit="tests",
        option=Option("Keep at most N hidden tests per problem.", min=1),
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
    mode: EvaluationMode = key(
        EvaluationMode.simple,
        "Generator: `simple` is vLLM in this process, or the server at `base_url`; `verl` is verl's "
        "standalone rollout.",
        option=Option(
            "Generate with vLLM in this process or --base-url (simple), or with verl (verl)."
        ),
    )
    cluster: Cluster | None = key(
        None,
        "`ray` judges on all nodes of a Ray cluster, and with `mode=verl` generates there: "
        "`docs/evaluate-on-a-cluster.md`. null: this machine only.",
        option=Option("Judge on all nodes of a Ray cluster. Default: this machine only."),
    )
    ray_address: str | None = key(
        None,
        "Address of the Ray head, as `HOST:PORT`. null: the environment variable `RAY_ADDRESS`.",
        option=Option(
            "Connect to the Ray head at this address. Default: $RAY_ADDRESS.", metavar="HOST:PORT"
        ),
    )
    base_url: str | None = key(
        None,
        "URL of an OpenAI-compatible server, such as `http://localhost:8000/v1`. If set, "
        "`recipes.baseline` has the defaults of chat models on any hardware: `coding.prompt=fenced` and "
        "the protocol's `max_tokens`.",
        option=Option("Query this OpenAI-compatible server, such as http://localhost:8000/v1."),
    )
    api_key_env: str = key(
        "OPENAI_API_KEY",
        "Environment variable with the server's API key.",
        option=Option("Read the server's API key from this environment variable."),
    )
    send_seeds: bool = key(
        True,
        "Send the server each sample's seed; false for a server that rejects the field.",
        option=Option("Send the server a seed per sample; some servers reject it."),
    )
    token_limit_field: TokenLimitField = key(
        TokenLimitField.max_tokens,
        "Request field for `max_tokens`: hosted reasoning models accept only `max_completion_tokens`.",
        option=Option(
            "Send --max-tokens in this field: max_tokens, or max_completion_tokens, "
            "which hosted reasoning models require."
        ),
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
    timeout_s: float = key(
        600.0,
        "Time-out of a request to the server.",
        unit="s",
        option=Option("Time a request out after N seconds.", min=0.1),
    )
    retry_s: float = key(
        300.0,
        "Time for which a failed request is retried before the evaluation ends; the same command "
        "resumes.",
        unit="s",
        option=Option("Retry a request for up to N seconds, then end the run.", min=0),
    )
    concurrency: int | None = key(
        None,
        "Concurrent requests. null: 256, or 32 to a server.",
        unit="requests",
        option=Option("Send N requests at once. Default: 32 to a server, else 256.", min=1),
    )
    max_model_len: int | None = key(
        None,
        "Maximum tokens of prompt plus completion. null: the model's limit.",
        unit="tokens",
        option=Option("Limit prompt plus completion to N tokens, for vLLM in this process."),
    )
    dtype: str = key(
        "auto",
        "Data type of the weights in vLLM: `auto`, `float32` or `bfloat16`.",
        option=Option("Load weights as auto, bfloat16 or float32, for vLLM in this process."),
    )
    shard: str | None = key(
        None,
        "Shard of the problems: `0/4` is the first of four shards. null: all problems.",
        option=Option("Evaluate one shard of the problems: 0/4 is the first of four."),
    )
    wandb: bool = key(
        False,
        "Log metrics and a table of samples to W&B (offline unless `WANDB_MODE` is set).",
        option=Option("Log to W&B, offline."),
    )
