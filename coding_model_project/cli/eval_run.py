"""The `eval run` command; `src/phase0_eval.py` is the same command with lists after an option."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from coding_model_project.cli.common import (
    DataDir,
    Limit,
    MapColumns,
    MaxTests,
    MinTier,
    NeededDatasets,
    OnCluster,
    RayAddress,
    Rule,
    SandboxUrls,
    Seed,
    Split,
    StopEarly,
    Workers,
    say,
)
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import EvaluationMode, TokenLimitField
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.readings import CountedBy
from coding_model_project.isolation.confine import Tier

HELP = """Evaluate a model by running the programs that it writes; every rate has its 95% interval.

\b
A served model (vLLM, SGLang, llama.cpp, a hosted API):
    python -m coding_model_project eval run --out outputs/eval/qwen \\
        --base-url http://localhost:8000/v1 --model Qwen/Qwen2.5-Coder-1.5B-Instruct \\
        --dataset humaneval --dataset mine=problems.jsonl

\b
A folder or Hub name, which vLLM loads into this process; 16 samples per problem:
    python -m coding_model_project eval run --out outputs/eval/qwen_sampled \\
        --model Qwen/Qwen2.5-Coder-1.5B-Instruct --dataset humaneval --protocol sampled

\b
A reasoning model, sampled as its authors recommend; reasoning tokens are counted separately:
    python -m coding_model_project eval run --out outputs/eval/qwen3 --model Qwen/Qwen3-8B \\
        --base-url http://localhost:8000/v1 --profile qwen3-thinking --protocol sampled --n 4 \\
        --dataset humaneval

\b
The last table shows pass@k; OUT holds metrics.json, results.jsonl, completions.jsonl,
readable qa_logs/ and report.html. After an interruption or an outage the same
command resumes. Next: `eval compare OUT OTHER`.
Exit codes: 0 done, 2 wrong usage, 3 infrastructure failed, 130 interrupted.
"""

Text = str | None
Whole = int | None


def run(
    model: Annotated[
        str,
        typer.Option(
            help="Evaluate this model: a folder, a Hub name or, with --base-url, its name on the server."
        ),
    ],
    dataset: NeededDatasets,
    map_columns: MapColumns = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write results to this folder, or resume it. Default: a new one in outputs/."
        ),
    ] = None,
    base_url: Annotated[
        Text,
        typer.Option(help="Query this OpenAI-compatible server, such as http://localhost:8000/v1."),
    ] = None,
    api_key_env: Annotated[
        str, typer.Option(help="Read the server's API key from this environment variable.")
    ] = "OPENAI_API_KEY",
    protocol: Annotated[
        str,
        typer.Option(
            help="Sample by this protocol. greedy: 1 sample at temperature 0; sampled: 16 samples, "
            "pass@1 to pass@16; budget: 32 samples, also pass rate by tokens and judge-seconds."
        ),
    ] = "greedy",
    n: Annotated[
        Whole, typer.Option(help="Draw N samples per problem. Default: the protocol's.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sample at this temperature. Default: the protocol's.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the nucleus of this probability. Default: the protocol's."),
    ] = None,
    max_tokens: Annotated[
        Whole,
        typer.Option(
            help="Cut a completion off after N tokens, reasoning included. Default: 2048."
        ),
    ] = None,
    profile: Annotated[
        Text,
        typer.Option(
            metavar="NAME|FILE",
            help="Sample as a model's authors recommend: qwen3-thinking, qwen3-instruct, deepseek-r1, or "
            "a YAML file with keys named like these options. Explicit options override it.",
        ),
    ] = None,
    top_k: Annotated[
        Whole, typer.Option(help="Sample from the N likeliest tokens; -1 for all.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Drop tokens below this share of the likeliest token's probability."),
    ] = None,
    presence_penalty: Annotated[
        float | None, typer.Option(help="Penalise tokens that have already occurred, -2 to 2.")
    ] = None,
    frequency_penalty: Annotated[
        float | None, typer.Option(help="Penalise tokens by how often they have occurred, -2 to 2.")
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Divide the likelihood of repeated tokens by this; 1 disables it."),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop a completion before this text; repeatable.")
    ] = None,
    chat_template_kwargs: Annotated[
        Text,
        typer.Option(
            metavar="JSON",
            help="Set chat template variables, such as '{\"enable_thinking\": false}'.",
        ),
    ] = None,
    token_limit_field: Annotated[
        TokenLimitField,
        typer.Option(
            help="Send --max-tokens in this field: max_tokens, or max_completion_tokens, "
            "which hosted reasoning models require."
        ),
    ] = TokenLimitField.max_tokens,
    prompt: Annotated[
        PromptStyle,
        typer.Option(
            help="Ask for a Markdown code block (fenced) or for the program itself (bare)."
        ),
    ] = PromptStyle.fenced,
    system_prompt: Annotated[
        Text, typer.Option(help="Send this system message before each problem. Default: none.")
    ] = None,
    extra_body: Annotated[
        Text,
        typer.Option(
            metavar="JSON",
            help='Add fields to each request, such as \'{"reasoning_effort": "low"}\'; null removes a '
            "field: '{\"temperature\": null}'.",
        ),
    ] = None,
    seed: Seed = 1,
    send_seeds: Annotated[
        bool, typer.Option(help="Send the server a seed per sample; some servers reject it.")
    ] = True,
    from_date: Annotated[
        Text,
        typer.Option(
            "--from", metavar="DAY", help="Use only problems published on or after this day."
        ),
    ] = None,
    to_date: Annotated[
        Text,
        typer.Option(
            "--to", metavar="DAY", help="Use only problems published on or before this day."
        ),
    ] = None,
    cutoff: Annotated[
        Text,
        typer.Option(
            metavar="DAY",
            help="Report problems from before and after the model's training data cutoff separately.",
        ),
    ] = None,
    split: Split = None,
    limit: Limit = None,
    max_tests: MaxTests = None,
    stop_early: StopEarly = False,
    rule: Rule = CountedBy.publisher,
    repair_rounds: Annotated[
        int,
        typer.Option(
            help="Let the model repair an answer that fails a public test, up to N times.", min=0
        ),
    ] = 0,
    concurrency: Annotated[
        Whole, typer.Option(help="Send N requests at once. Default: 32 to a server, else 256.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(help="Time a request out after N seconds.", min=0.1)
    ] = 600.0,
    retry_s: Annotated[
        float,
        typer.Option(help="Retry a request for up to N seconds, then end the run.", min=0),
    ] = 300.0,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
    sandbox_url: SandboxUrls = None,
    data_dir: DataDir = None,
    mode: Annotated[
        EvaluationMode,
        typer.Option(
            help="Generate with vLLM in this process or --base-url (simple), or with verl (verl)."
        ),
    ] = EvaluationMode.simple,
    cluster: OnCluster = None,
    ray_address: RayAddress = None,
    max_model_len: Annotated[
        Whole,
        typer.Option(help="Limit prompt plus completion to N tokens, for vLLM in this process."),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(help="Load weights as auto, bfloat16 or float32, for vLLM in this process."),
    ] = "auto",
    shard: Annotated[
        Text, typer.Option(help="Evaluate one shard of the problems: 0/4 is the first of four.")
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(help="Merge the results of this shard's folder; repeatable."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Resume with changed settings such as --concurrency; model, seed, protocol and data "
            "must not change.",
        ),
    ] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Log to W&B, offline.")] = False,
) -> None:
    from coding_model_project.configs.typed import coding_of, evaluation_settings, new_config
    from coding_model_project.data.loaders.forms import parse_map
    from coding_model_project.evaluation.shards import gather
    from coding_model_project.runs.provenance import command_line
    from coding_model_project.verl_ext import evaluating

    folder = out or Path(time.strftime("outputs/eval/%Y%m%d_%H%M%S"))
    sandbox: dict[str, Any] = {"workers": workers, "min_tier": min_tier}
    if sandbox_url:
        sandbox |= {"name": "fusion", "urls": sandbox_url}
    config = new_config(
        {
            "run_dir": str(folder),
            "seed": seed,
            "prompt": prompt,
            "sandbox": sandbox,
            "force": force,
        },
        {
            "model": model,
            "datasets": dataset,
            "columns": parse_map(map_columns),
            "data_dir": str(data_dir) if data_dir else None,
            "mode": mode,
            "cluster": cluster,
            "ray_address": ray_address,
            "protocol": protocol,
            "n": n,
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_tokens,
            "profile": profile,
            "top_k": top_k,
            "min_p": min_p,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "repetition_penalty": repetition_penalty,
            "stop": stop,
            "chat_template_kwargs": _json_object("--chat-template-kwargs", chat_template_kwargs),
            "token_limit_field": token_limit_field,
            "system_prompt": system_prompt,
            "extra_body": _json_object("--extra-body", extra_body),
            "max_model_len": max_model_len,
            "dtype": dtype,
            "base_url": base_url,
            "api_key_env": api_key_env,
            "send_seeds": send_seeds,
            "timeout_s": timeout_s,
            "retry_s": retry_s,
            "concurrency": concurrency,
            "from_date": from_date,
            "to_date": to_date,
            "cutoff": cutoff,
            "split": split,
            "limit": limit,
            "max_tests": max_tests,
            "repair_rounds": repair_rounds,
            "stop_early": stop_early,
            "rule": rule,
            "shard": shard,
            "wandb": wandb,
        },
    )
    if merge:
        gather(evaluation_settings(coding_of(config)), merge, say=print)
    try:
        evaluating.run(config, command=command_line(), say=say)
    except KeyboardInterrupt:
        again = "" if out else f" with --out {folder}"
        print(f"interrupted; run the same command again{again} to resume", file=sys.stderr)
        raise


def _json_object(option: str, text: str | None) -> dict[str, Any] | None:
    import orjson

    if text is None:
        return None
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}={text}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{option}={text}: expected a JSON object such as '{{\"key\": 1}}'")
    return found
