"""The commands that take a model: `eval run`, `eval latest`, `export` and `serve`.

`src/phase0_eval.py` is `eval run` with lists after an option.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import typer

from coding_model_project.cli import options
from coding_model_project.cli.options import on_servers, publishes, say
from coding_model_project.config_key import argument, option
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.http import free_port
from coding_model_project.storage.fetching import folder_on_disk


@publishes
def export(
    checkpoint: Path = argument(
        ..., "A checkpoint, a run (its last checkpoint), or a model's folder."
    ),
    out: Path | None = option(
        None, "Write the model to this folder. Default: RUN/exports/global_step_N."
    ),
    evaluation: list[Path] = option(
        [], "Add this evaluation of the model to the model card; repeatable."
    ),
) -> None:
    """Write a checkpoint as a Hugging Face model with a card of its measured values.

    Merges shards and LoRA adapters. Repeating it with --evaluation rewrites the card; an evaluation
    of other weights is refused.
    """
    from coding_model_project.handover import export as exporting

    found = exporting.source(Path(folder_on_disk(checkpoint)))
    target = exporting.export(found, out or found.default_out, evaluation, print)
    print(f"{found.name} is in {target}; its card is {target / exporting.CARD}")


def serve(
    context: typer.Context,
    checkpoint: Path | None = argument(None, "A checkpoint or a model's folder."),
    latest: Path | None = option(None, "Serve the last checkpoint of this run."),
    host: str = option("127.0.0.1", options.HOST),
    port: int = option(8000, "Listen on this port.", min=1, max=65535),
    name: str | None = option(None, "Name the model for clients. Default: the name on its card."),
    follow: bool = option(
        False, "Wait for the first checkpoint of --latest, and switch to each newer one."
    ),
) -> None:
    """Serve a checkpoint with vLLM's OpenAI-compatible server until Ctrl-C.

    With --follow the model has two names: the run's, which stays, and the checkpoint's. Requests are
    refused while vLLM restarts with a newer checkpoint.

    Unknown options are passed to `vllm serve`, such as --max-model-len 4096.
    """
    from coding_model_project.handover import export as exporting
    from coding_model_project.handover import serving

    more = context.args
    if str(checkpoint).startswith(
        "-"
    ):  # an option of `vllm serve`, parsed as the missing checkpoint
        if latest is None:
            raise ConfigError(
                f"serve: no checkpoint; pass one before {checkpoint}, or --latest RUN"
            )
        checkpoint, more = None, [str(checkpoint), *more]
    if (checkpoint is None) == (latest is None):
        raise ConfigError("serve: pass either a checkpoint or --latest RUN")
    if follow and latest is None:
        raise ConfigError("serve: --follow needs --latest RUN")
    on_cpu = _prepare()

    def command(model: Path, names: list[str]) -> list[str]:
        return serving.server_command(model, names, host=host, port=port, on_cpu=on_cpu, more=more)

    if follow and latest is not None:
        stays = name or latest.resolve().name
        print(f"model {stays} at http://{host}:{port}/v1", flush=True)
        serving.follow(latest, lambda model, of: command(model, [stays, of.name]), say=say)
    found = exporting.latest(latest) if latest else exporting.source(checkpoint or Path())
    model = serving.model_of(found, print)
    served = name or found.name
    print(f"serving {model} as {served} at http://{host}:{port}/v1; stop with Ctrl-C", flush=True)
    words = command(model, [served])
    os.execv(words[0], words)


def _prepare() -> bool:
    """Set the environment of a server on this machine's devices; return whether it runs on a CPU."""
    from coding_model_project.launch.device import count_gpus, prepare_environment

    on_cpu = count_gpus() == 0
    prepare_environment("cpu" if on_cpu else "cuda", alone=True)
    return on_cpu


# ── evaluations ──────────────────────────────────────────────────────────────────────────────────────


def run(
    *,
    evaluation: EvaluationConfig,
    sandbox: options.JudgingOrServed,
    prompt: PromptStyle = option(
        PromptStyle.fenced,
        "Ask for a Markdown code block (fenced) or for the program itself (bare).",
    ),
    seed: int = option(1, options.SEED),
    out: Path | None = option(
        None, "Write results to this folder, or resume it. Default: a new one in outputs/."
    ),
    merge: list[Path] = option([], "Merge the results of this shard's folder; repeatable."),
    force: bool = option(
        False,
        "Resume with changed settings such as --concurrency; model, seed, protocol and data "
        "must not change.",
    ),
) -> None:
    """Evaluate a model by running the programs that it writes; every rate has its 95% interval.

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
    from coding_model_project.configs.schema import coding_of, evaluation_settings, new_config
    from coding_model_project.evaluation.evaluate import gather
    from coding_model_project.runs.provenance import command_line
    from coding_model_project.verl_ext import evaluating

    folder = out or Path(time.strftime("outputs/eval/%Y%m%d_%H%M%S"))
    coding = {
        "run_dir": str(folder),
        "seed": seed,
        "prompt": prompt,
        "sandbox": vars(on_servers(sandbox)),
        "force": force,
    }
    config = new_config(coding, vars(evaluation))
    if merge:
        gather(evaluation_settings(coding_of(config)), merge, say=print)
    try:
        evaluating.run(config, command=command_line(), say=say)
    except KeyboardInterrupt:
        again = "" if out else f" with --out {folder}"
        options.warn(f"interrupted; run the same command again{again} to resume")
        raise


def latest(
    context: typer.Context,
    run: Path = argument(..., "A training run's folder."),
    dataset: list[str] = option([], options.DATASETS),
    tasks: list[Path] = option(
        [], "Evaluate on these Harbor tasks; repeatable.", metavar="TASK_DIR"
    ),
    benchmark: list[str] = option([], options.BENCHMARKS),
    out: Path | None = option(
        None, "Write results to this folder, or resume it. Default: RUN/evaluations/CHECKPOINT."
    ),
) -> int:
    """Serve the last checkpoint of a run, evaluate it, and stop the server.

    \b
    On data sets, with `eval run`, which also gets all options that this command does not have:
        python -m coding_model_project eval latest outputs/grpo --dataset humaneval \\
            --protocol sampled --n 4

    \b
    On Harbor tasks, with `harbor eval`:
        python -m coding_model_project eval latest outputs/grpo --tasks tasks --n-tasks 500 \\
            --concurrency 256

    The prompt style is the run's. The same command resumes. The exit code is the evaluation's.
    """
    from coding_model_project.handover import export as exporting
    from coding_model_project.handover import serving
    from coding_model_project.isolation.child import interrupting, start_child
    from coding_model_project.runs.folder import RunFolder, plain_config, value_at

    if sum(map(bool, (dataset, tasks, benchmark))) != 1:
        raise ConfigError("eval latest: pass exactly one of --dataset, --tasks and --benchmark")
    found = exporting.latest(run)
    folder = out or run / "evaluations" / found.name
    if dataset:
        arguments = ["eval", "run", *(word for name in dataset for word in ("--dataset", name))]
        config = RunFolder(run).config
        style = value_at(plain_config(config), "coding.prompt") if config.is_file() else None
        arguments += ["--prompt", style] if style and "--prompt" not in context.args else []
    else:
        arguments = ["harbor", "eval", *map(str, tasks)]
        arguments += [f"--benchmark={name}" for name in benchmark]
    on_cpu = _prepare()
    model = serving.model_of(found, print)
    port = free_port()
    command = serving.server_command(
        model, [found.name], host=serving.LOCALHOST, port=port, on_cpu=on_cpu, more=[]
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(
        f"{folder.name}.server.log"
    )  # an evaluation's folder has nothing else in it
    print(f"serving {found.name}; vLLM's log is {log}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with serving.served(command, port, log) as url:
        words = [*arguments, *context.args, "--base-url", url, "--model", found.name]
        words += ["--out", str(folder)]
        evaluation = [sys.executable, "-m", "coding_model_project", *words]
        with interrupting(start_child(evaluation)) as process:
            return process.wait()
