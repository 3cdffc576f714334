"""`harbor`: tasks in Harbor's format, graded here."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.harbor_eval import evaluate
from coding_model_project.cli.harbor_results import Job, results
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.environment.base import EnvironmentKind

app = typer.Typer(no_args_is_help=True, help="Tasks in Harbor's format.")
app.command("results")(results)
app.command("eval")(evaluate)

Tasks = Annotated[list[Path], typer.Argument(help="Tasks' folders, or folders of them.")]
Concurrency = Annotated[
    int | None, typer.Option(help="Trials at once; one per CPU core by default.", min=1)
]
Rootfs = Annotated[
    Path | None,
    typer.Option(help="A root file system, folder or tar, in the place of this machine's."),
]
Where = Annotated[
    EnvironmentKind,
    typer.Option("--environment", help="Where trials run; containers take an engine."),
]


@app.command()
def grade(
    task_dirs: Tasks,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Run each task's own solution. The default.")
    ] = False,
    script: Annotated[
        Path | None, typer.Option(help="Run this shell script in the place of the solution.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    concurrency: Concurrency = None,
    environment: Where = EnvironmentKind.embedded,
    rootfs: Rootfs = None,
    verifier_env: Annotated[
        list[str] | None,
        typer.Option("--verifier-env", help="NAME=VALUE for every verifier; may come twice."),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(help="Keep the trials in this new folder as Harbor does, for `harbor view`."),
    ] = None,
) -> int:
    """Grade tasks: a line of JSON for each, a refused one too.

    Exit code 3 if an environment failed: nothing is known about its task then.
    """
    if oracle and script is not None:
        raise ConfigError("--oracle and --script: choose one")
    return asyncio.run(
        _grade(
            task_dirs,
            script,
            as_json,
            concurrency,
            environment,
            rootfs,
            _variables(verifier_env or []),
            job,
        )
    )


async def _grade(
    task_dirs: list[Path],
    script: Path | None,
    as_json: bool,
    concurrency: int | None,
    where: EnvironmentKind,
    rootfs: Path | None,
    verifier_env: dict[str, str],
    job: Path | None,
) -> int:
    from coding_model_project.harbor.agents import Agent, Oracle, Script
    from coding_model_project.harbor.environment.factory import environments_of
    from coding_model_project.harbor.grading import grade as grade_tasks
    from coding_model_project.harbor.task import Task
    from coding_model_project.harbor.tasks import read_tasks
    from coding_model_project.harbor.trial import Trials

    def agent(_: Task) -> Agent:
        return Oracle() if script is None else Script(script.read_text())

    at_once = concurrency or len(os.sched_getaffinity(0))
    agent_name = "oracle" if script is None else "script"
    kept = Job(job, agent_name, at_once, where) if job is not None else None
    failed = False
    async with environments_of(where, rootfs) as environments:
        trials = Trials(environments, verifier_env=verifier_env)
        tasks = read_tasks(task_dirs, os.environ, oracle=script is None)
        async for graded in grade_tasks(tasks, trials, agent, concurrency=at_once):
            print(json.dumps(graded.line()), flush=True)
            failed = failed or graded.failed
            if kept is not None and graded.outcome is not None:
                kept.add(graded.outcome)
            if graded.outcome is not None and not as_json:
                for line in _remarks(graded.outcome):
                    print(f"{graded.task}: {line}", file=sys.stderr)
    if kept is not None:
        kept.finish()
    return 3 if failed else 0


def _remarks(outcome) -> list[str]:
    errors = [outcome.error, *(step.error for step in outcome.steps)]
    return [*outcome.task.warnings, *outcome.notes, *dict.fromkeys(str(e) for e in errors if e)]


def _variables(given: list[str]) -> dict[str, str]:
    pairs = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigError(f"--verifier-env={word}: not NAME=VALUE")
        pairs[name] = value
    return pairs


@app.command()
def bench(
    trials: Annotated[int, typer.Option(help="Trials to run.", min=1)] = 300,
    concurrency: Concurrency = None,
) -> None:
    """Measure oracle trials of a trivial task. The last line is JSON."""
    from dataclasses import asdict

    from coding_model_project.harbor.bench import measure

    at_once = concurrency or len(os.sched_getaffinity(0))
    speed = asyncio.run(measure(trials, at_once))
    print(json.dumps({key: round(value, 2) for key, value in asdict(speed).items()}))
