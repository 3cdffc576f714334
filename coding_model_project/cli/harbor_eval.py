"""`harbor eval`: a model behind an endpoint attempts Harbor tasks by the bash agent."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import AsJson, Rootfs, TaskDirs, Where, cores
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import ROOMS, TaskEnvironment

if TYPE_CHECKING:
    from coding_model_project.harbor.evaluation.job import Asked, Evaluation
    from coding_model_project.harbor.format.task import Task


def evaluate(
    task_dirs: TaskDirs,
    base_url: Annotated[
        str, typer.Option(help="Ask this OpenAI-compatible server: http://localhost:8000/v1.")
    ],
    model: Annotated[str, typer.Option(help="Ask the model that is served by this name.")],
    out: Annotated[Path, typer.Option(help="Keep the job in this folder, or resume it.")],
    limit: Annotated[
        int | None,
        typer.Option("--limit", "--n-tasks", help="Use only the first N tasks.", min=1),
    ] = None,
    attempts: Annotated[int, typer.Option(help="Attempt each task N times.", min=1)] = 1,
    workers: Annotated[
        int | None,
        typer.Option(help="Run this many trials at once; two per CPU core by default.", min=1),
    ] = None,
    environment: Where = ROOMS,
    rootfs: Rootfs = None,
    turns: Annotated[int, typer.Option(help="Let the model give N commands.", min=1)] = 20,
    command_s: Annotated[
        float, typer.Option(help="Kill a command after N seconds.", min=0.1)
    ] = 120.0,
    total_s: Annotated[
        float, typer.Option(help="End a trial's agent after N seconds.", min=1.0)
    ] = 1800.0,
    calls: Annotated[
        Calls,
        typer.Option(help="Take commands from code blocks, or from calls of the tool `bash`."),
    ] = Calls.block,
    max_tokens: Annotated[int, typer.Option(help="Cut a reply off at N tokens.", min=1)] = 2048,
    temperature: Annotated[float, typer.Option(help="Sample at this temperature.", min=0.0)] = 0.7,
    retry_s: Annotated[
        float, typer.Option(help="Retry a request for N seconds, then end its trial.", min=0)
    ] = 300.0,
    as_json: AsJson = False,
) -> int:
    """Let a model attempt tasks by shell commands: PASS, FAIL, and ERROR by cause.

    With `--calls tools` the server gets the schema of a tool `bash` and must take calls out of replies
    (vLLM: `--enable-auto-tool-choice --tool-call-parser hermes`).

    Trials are kept in OUT as Harbor keeps a job's (`harbor view`). The same command goes on after it was
    stopped or killed; no trial that is over is run again, but for those that an outage ended. Errors
    are in no rate. A key for the server is taken from OPENAI_API_KEY.

    The last line is JSON. Exit code 3 if an outage ended trials: the same command tries those again.
    """
    from coding_model_project.episodes.bash import Limits
    from coding_model_project.evaluation.backends.generation import Sampling
    from coding_model_project.harbor.evaluation.job import Asked, Evaluation
    from coding_model_project.harbor.recording import harbors_name
    from coding_model_project.runs.folder import sole_writer

    asked = Asked(
        model=model,
        attempts=attempts,
        environment=harbors_name(environment),
        limits=Limits(turns=turns, command_s=command_s, total_s=total_s),
        sampling=Sampling(temperature=temperature, max_tokens=max_tokens),
        calls=calls,
    )
    tasks = _runnable(task_dirs)[:limit]
    at_once = workers or 2 * cores(None)
    with sole_writer(out, "evaluation"):
        evaluation = Evaluation(out, tasks, asked)
        with evaluation.opened():
            asyncio.run(_run(evaluation, asked, base_url, environment, rootfs, at_once, retry_s))
    return _report(evaluation, as_json)


async def _run(
    evaluation: Evaluation,
    asked: Asked,
    base_url: str,
    environment: str,
    rootfs: Path | None,
    at_once: int,
    retry_s: float,
) -> None:
    from coding_model_project.evaluation.backends.openai_backend import OpenAIBackend
    from coding_model_project.harbor.environment.factory import environments_of
    from coding_model_project.harbor.trial import Trials
    from coding_model_project.progress import progress_bar

    if not evaluation.missing():
        return
    tools = {"tools": schemas} if (schemas := asked.calls.schemas) else None
    backend = OpenAIBackend(
        base_url, asked.model, concurrency=at_once, retry_s=retry_s, extra_body=tools
    )
    async with backend, environments_of(TaskEnvironment(name=environment), rootfs) as environments:
        with progress_bar("trials", evaluation.n_total, len(evaluation.trials)) as advance:
            await evaluation.run(Trials(environments), backend, at_once, advance)


def _runnable(task_dirs: list[Path]) -> list[Task]:
    """The tasks; those that Harbor would refuse are named on standard error."""
    from coding_model_project.harbor.format.task import Task
    from coding_model_project.harbor.format.tasks import read_tasks

    tasks = []
    for one in read_tasks(task_dirs, os.environ):
        if isinstance(one, Task):
            tasks.append(one)
            for warning in one.warnings:
                print(f"{one.path.name}: {warning}", file=sys.stderr)
        else:
            print(f"set aside: {one.reason}", file=sys.stderr)
    if not tasks:
        raise ConfigError(f"{', '.join(map(str, task_dirs))}: no task that can be run")
    return tasks


def _report(evaluation: Evaluation, as_json: bool) -> int:
    from coding_model_project.harbor.evaluation.job import OUTAGES, said
    from coding_model_project.harbor.evaluation.job_report import summary, task_table

    trials = evaluation.trials
    counted = summary(trials)
    if not as_json:
        print(task_table(trials))
        for k, rate in counted["pass_at_k"].items():
            low, high = counted["interval"] or (rate, rate)
            interval = f" (95%: {low:.1%} – {high:.1%})" if k == "1" else ""
            print(f"pass@{k}: {rate:.1%}{interval} over {counted['n_tasks']} tasks")
        if counted["n_tasks_without"]:
            print(f"{counted['n_tasks_without']} tasks have no trial without an error")
    outages = [trial for trial in trials if trial.failure_cause in OUTAGES]
    for reason in sorted({said(trial) for trial in outages}):
        print(f"outage: {reason}", file=sys.stderr)
    print(json.dumps(counted))
    return 3 if outages else 0
