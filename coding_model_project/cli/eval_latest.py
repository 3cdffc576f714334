"""`eval latest`: a training's last checkpoint, served, evaluated and stopped."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import Benchmarks, Datasets
from coding_model_project.errors import ConfigError

HELP = """Serve the last checkpoint of a run, evaluate it, and stop the server.

\b
On data sets, by `eval run`; what this command does not know is handed on to it:
    python -m coding_model_project eval latest outputs/grpo --dataset humaneval \\
        --protocol sampled --n 4

\b
On Harbor tasks, by `harbor eval`:
    python -m coding_model_project eval latest outputs/grpo --tasks tasks --n-tasks 500 \\
        --concurrency 256

The prompt's style is the run's. The same command resumes. Exit codes are those of the evaluation.
"""


def latest(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A training's folder.")],
    dataset: Datasets = None,
    tasks: Annotated[
        list[Path] | None,
        typer.Option(metavar="TASK_DIR", help="Let it attempt these Harbor tasks; repeatable."),
    ] = None,
    benchmark: Benchmarks = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write results to this folder, or resume it. Default: RUN/evaluations/CHECKPOINT."
        ),
    ] = None,
) -> int:
    from coding_model_project.handover import export as exporting
    from coding_model_project.handover import serving
    from coding_model_project.http import free_port
    from coding_model_project.isolation.child import interrupting, start_child
    from coding_model_project.launch.device import count_gpus, prepare_environment

    if sum(map(bool, (dataset, tasks, benchmark))) != 1:
        raise ConfigError(
            "eval latest: name data sets by --dataset, or Harbor tasks by --tasks or --benchmark"
        )
    found = exporting.latest(run)
    folder = out or run / "evaluations" / found.name
    of_tasks = [*map(str, tasks or ()), *(f"--benchmark={name}" for name in benchmark or ())]
    asked = _evaluation(run, dataset or [], of_tasks, [*context.args])
    on_cpu = count_gpus() == 0
    prepare_environment("cpu" if on_cpu else "cuda")
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
        words = [*asked, "--base-url", url, "--model", found.name, "--out", str(folder)]
        evaluation = [sys.executable, "-m", "coding_model_project", *words]
        with interrupting(start_child(evaluation)) as process:
            return process.wait()


def _evaluation(run: Path, datasets: list[str], tasks: list[str], more: list[str]) -> list[str]:
    """The command that evaluates, but for the model and where it is."""
    if tasks:
        return ["harbor", "eval", *tasks, *more]
    words = [word for name in datasets for word in ("--dataset", name)]
    if "--prompt" not in more and (style := _prompt(run)):
        words += ["--prompt", style]
    return ["eval", "run", *words, *more]


def _prompt(run: Path) -> str | None:
    """The style of the run's prompts, as its configuration has it."""
    from omegaconf import OmegaConf

    path = run / "config.yaml"
    return OmegaConf.select(OmegaConf.load(path), "coding.prompt") if path.is_file() else None
