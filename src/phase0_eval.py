"""Phase 0: evaluate a model on data sets by running what it writes; every rate has its interval.

    python src/phase0_eval.py --mode simple --model M \\
        --datasets humaneval mbpp_reg codecontests_valid

M is a folder or a hub name, which vLLM loads into this process; with
--base-url, the name under which a server of OpenAI's API serves it.
A data set is a name, NAME=PATH, or the path of a file of problems.

    --protocol greedy      EVAL@1: one greedy answer per problem
    --protocol sampled     EVAL@k: 16 samples, unbiased pass@1 to pass@16
    --protocol budget      EVAL@budget: 32 samples; pass rate against
                           tokens and judge-seconds spent

Writes metrics.json, results.jsonl, completions.jsonl, run_info.json,
summary.json, qa_logs/ and report.html into --out. What was stopped or
killed goes on with the same command and --out.

Over several processes, each with its own --out: --shard 0/4 to 3/4; then
--merge with the folders of all four, and no --shard, puts them together.

Exit codes: 0 done, 2 wrong usage or configuration, 3 infrastructure
failed, 130 interrupted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli import run_app

LISTS = ("--datasets", "--merge")
"""Options that take several words after them, which typer has no word for."""

Text = str | None
Whole = int | None
Path_ = Path | None


def evaluate(
    model: Annotated[str, typer.Option(help="A folder, a hub name, or the name it is served by.")],
    datasets: Annotated[
        list[str] | None, typer.Option(help="[default: humaneval mbpp_reg codecontests_valid]")
    ] = None,
    out: Annotated[Path_, typer.Option(help="[default: outputs/phase0_DATE_TIME]")] = None,
    mode: Annotated[
        str, typer.Option(help="simple: vLLM here, or --base-url. verl: verl's rollout.")
    ] = "simple",
    protocol: Annotated[str, typer.Option(help="greedy, sampled or budget.")] = "greedy",
    prompt: Annotated[
        str, typer.Option(help="fenced: ask for a code block. bare: for the program itself.")
    ] = "fenced",
    seed: Annotated[int, typer.Option(help="Of all samples.")] = 1,
    base_url: Annotated[
        Text, typer.Option(help="A server, such as http://localhost:8000/v1. Key: $OPENAI_API_KEY.")
    ] = None,
    send_seeds: Annotated[bool, typer.Option(help="Send that server a seed per sample.")] = True,
    data_dir: Annotated[
        Path_, typer.Option(help="Where data sets lie. [default: $CODING_DATA_DIR, ./data]")
    ] = None,
    n: Annotated[Whole, typer.Option(help="Samples per problem, not the protocol's.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Not the protocol's.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Not the protocol's.")] = None,
    max_tokens: Annotated[Whole, typer.Option(help="Longest completion.")] = None,
    max_model_len: Annotated[Whole, typer.Option(help="Of prompt and completion.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, bfloat16 or float32.")] = "auto",
    concurrency: Annotated[Whole, typer.Option(help="Requests at once.")] = None,
    limit: Annotated[Whole, typer.Option(help="Only the first problems of each set.")] = None,
    max_tests: Annotated[Whole, typer.Option(help="At most so many tests of a problem.")] = None,
    repair_rounds: Annotated[
        int, typer.Option(help="Repairs of an answer that fails a public test.", min=0)
    ] = 0,
    stop_early: Annotated[
        bool, typer.Option("--stop-early", help="Judge until the first failing test only.")
    ] = False,
    sandbox_url: Annotated[
        list[str] | None, typer.Option(help="Judge on this SandboxFusion server; repeatable.")
    ] = None,
    shard: Annotated[Text, typer.Option(help="Only a part: 0/4 is the first of four.")] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Folders of all shards, to be put together.")
    ] = None,
    wandb: Annotated[bool, typer.Option("--wandb", help="Log to W&B, offline.")] = False,
) -> None:
    from coding_model_project.phase0 import new_config
    from coding_model_project.phase0.shards import gather
    from coding_model_project.runs.provenance import command_line
    from coding_model_project.verl_ext import evaluating
    from eval_config import PHASE0_SETS

    folder = out or Path(time.strftime("outputs/phase0_%Y%m%d_%H%M%S"))
    urls = {"name": "fusion", "urls": sandbox_url} if sandbox_url else {}
    config = new_config(
        {"run_dir": str(folder), "seed": seed, "prompt": prompt, "sandbox": urls},
        {
            "model": model,
            "datasets": datasets or list(PHASE0_SETS),
            "data_dir": str(data_dir) if data_dir else None,
            "mode": mode,
            "protocol": protocol,
            "n": n,
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_tokens,
            "max_model_len": max_model_len,
            "dtype": dtype,
            "base_url": base_url,
            "send_seeds": send_seeds,
            "concurrency": concurrency,
            "limit": limit,
            "max_tests": max_tests,
            "repair_rounds": repair_rounds,
            "stop_early": stop_early,
            "shard": shard,
            "wandb": wandb,
        },
    )
    if merge:
        gather(config, merge, say=print)
    try:
        evaluating.run(config, command=command_line(), say=print)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise


def spread(arguments: list[str]) -> list[str]:
    """`--datasets a b` as `--datasets a --datasets b`."""
    words: list[str] = []
    option = None
    for word in arguments:
        if word.startswith("-"):
            option = word if word in LISTS else None
            words += [] if option else [word]
        else:
            words += [option, word] if option else [word]
    return words


def main() -> int:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(help="\b\n" + (__doc__ or "").replace("\n\n", "\n\n\b\n"))(evaluate)
    return run_app(app, "python src/phase0_eval.py", spread(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
