"""The `eval latest` command: serve a run's last checkpoint, evaluate it, stop the server."""

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
On data sets, with `eval run`, which also gets all options that this command does not have:
    python -m coding_model_project eval latest outputs/grpo --dataset humaneval \\
        --protocol sampled --n 4

\b
On Harbor tasks, with `harbor eval`:
    python -m coding_model_project eval latest outputs/grpo --tasks tasks --n-tasks 500 \\
        --concurrency 256

The prompt style is the run's. The same command resumes. The exit code is the evaluation's.
"""


def latest(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A training run's folder.")],
    dataset: Datasets = None,
    tasks: Annotated[
        list[Path] | None,
        typer.Option(metavar="TASK_DIR", help="Evaluate on these Harbor tasks; repeatable."),
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
        raise ConfigError("eval latest: pass exactly one of --dataset, --tasks and --benchmark")
    found = exporting.latest(run)
    folder = out or run / "evaluations" / found.name
    of_tasks = [*map(str, tasks or ()), *(f"--benchmark={name}" for name in benchmark or ())]
    arguments = _evaluation(run, dataset or [], of_tasks, [*context.args])
    on_cpu = count_gpus() == 0
    prepare_environment("cpu" if on_cpu else "cuda", alone=True)
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
        words = [*arguments, "--base-url", url, "--model", found.name, "--out", str(folder)]
        evaluation = [sys.executable, "-m", "coding_model_project", *words]
        with interrupting(start_child(evaluation)) as process:
            return process.wait()


def _evaluation(run: Path, datasets: list[str], tasks: list[str], more: list[str]) -> list[str]:
    """Return the evaluation command without the model and its URL."""
    if tasks:
        return ["harbor", "eval", *tasks, *more]
    words = [word for name in datasets for word in ("--dataset", name)]
    if "--prompt" not in more and (style := _prompt(run)):
        words += ["--prompt", style]
    return ["eval", "run", *words, *more]


def _prompt(run: Path) -> str | None:
    """Return the prompt style of the run's configuration, or None."""
    from coding_model_project.runs.folder import RunFolder, plain_config, value_at

    path = RunFolder(run).config
    return value_at(plain_config(path), "coding.prompt") if path.is_file() else None
