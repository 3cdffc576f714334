"""The `jobs` command group: run recipes on other machines, and fetch their results."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands
from coding_model_project.cli.options import print_table, say
from coding_model_project.config_key import Option, argument, option
from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.launch.jobs import base
from coding_model_project.launch.jobs.base import (
    Backend,
    Job,
    JobState,
    LocalOptions,
    RayOptions,
    SageMakerOptions,
    SlurmOptions,
    backend_of,
)
from coding_model_project.redaction import redacted

if TYPE_CHECKING:
    from coding_model_project.launch.jobs.control import JobLog

app = Commands(
    help="Run recipes on this machine's GPUs, a Ray cluster, Slurm or SageMaker.",
    no_args_is_help=True,
)

_COLUMNS = ("name", "where", "state", "recipe", "commit", "patch", "submitted", "description")
_NAME = Option("The job's name, as `jobs list` shows it.", is_argument=True)
_FOLDER = Option("Keep the job log and a folder per job in this folder.", "--jobs")
_JOBS = Path("outputs/jobs")


@app.command(context_settings={"ignore_unknown_options": True})
def submit(
    context: typer.Context,
    *,
    recipe: str = argument(..., "The recipe: sft, dpo, grpo, …."),
    overrides: list[str] = argument([], "The recipe's overrides.", metavar="key=value..."),
    backend: str = option("local", "Run the job on `local`, `ray`, `slurm` or `sagemaker`."),
    name: str | None = option(None, "Name the job. Default: its recipe and the time."),
    anonymous: bool = option(False, "Use a random name that reveals nothing."),
    description: str = option("", "Describe the job in the job log."),
    repo: Path = option(Path(), "Ship the git working tree that contains this folder."),
    max_package_mb: float = option(100, "Refuse to ship a working tree larger than N MB.", min=0.1),
    jobs: Path = option(_JOBS, _FOLDER),
    check: bool = option(False, "Check the job, print what it would run, and end."),
    with_evaluation: bool = option(False, "Evaluate each checkpoint in the same job (`watch`)."),
    eval_gpus: int = option(0, "Reserve the last N of the job's GPUs for evaluations.", min=0),
    eval_arguments: str = option(
        "", "Add these options to `eval run`, such as --eval-arguments='--dataset mbpp_reg --n 4'."
    ),
    local: LocalOptions,
    ray: RayOptions,
    slurm: SlurmOptions,
    sagemaker: SageMakerOptions,
) -> None:
    """Run a recipe as a job, from the current working tree, and print the job's name.

    A job with the coding.run_dir of an earlier one resumes its run.
    """
    from coding_model_project.launch.jobs import control
    from coding_model_project.launch.jobs.control import JobLog
    from coding_model_project.launch.jobs.source import read_source

    own = {"local": local, "ray": ray, "slurm": slurm, "sagemaker": sagemaker}
    _check_choice("recipe", recipe, base.JOB_RECIPES)
    _check_choice("--backend", backend, own)
    _refuse_others(context, backend)
    if anonymous and name is not None:
        raise ConfigError("--anonymous and --name exclude each other; pass one of them")
    if (eval_gpus or eval_arguments) and not with_evaluation:
        given = f"--eval-gpus={eval_gpus}" if eval_gpus else f"--eval-arguments={eval_arguments}"
        raise ConfigError(f"{given}: needs --with-evaluation")
    chosen = name if name is not None else base.new_name(recipe, anonymous=anonymous)
    base.check_name(chosen)
    for resource, n in ray.resource.items():
        if not 0 <= n < math.inf:
            raise ConfigError(f"--resource={resource}={n:g}: expected a finite number from 0")
    source = read_source(repo, max_mb=max_package_mb)
    log = JobLog(jobs)
    given, run_dir = base.with_run_dir(backend, tuple(overrides), chosen)
    job = base.Job(
        name=chosen,
        backend=backend,
        options=asdict(own[backend]),
        recipe=recipe,
        overrides=given,
        run_dir=run_dir,
        folder=str(log.folder / chosen),
        cwd=str(Path.cwd()),
        commit=source.commit,
        patch=source.patch_hash,
        submitted=time.time(),
        description=description,
        mirror=sagemaker.s3 or base.value_of(given, "coding.mirror.url") or "",
        evaluation=base.Evaluation(gpus=eval_gpus, arguments=eval_arguments)
        if with_evaluation
        else None,
    )
    runner = backend_of(job)
    control.check_recipe(recipe, given)
    if check:
        runner.check(job)
        print(runner.text(job))
        return
    control.submit(runner, job, source, log)
    dirty = f" with changes {source.patch_hash[:12]}" if source.patch else ""
    print(chosen)
    options.warn(f"commit {source.commit[:12]}{dirty}; run folder {run_dir}")


@app.command("list")
def list_jobs(
    jobs: Path = option(_JOBS, _FOLDER),
    out: Path | None = option(None, "Write the table to this Markdown file."),
    offline: bool = option(False, "Show the last known states."),
) -> None:
    """List all jobs, newest first: state, command, commit, folder, times."""
    from coding_model_project.launch.jobs.control import JobLog, cells_of, refresh, table

    log = JobLog(jobs)
    silent: set[str] = set()  # queried once: an unreachable head takes long to time out
    for job in () if offline else log.jobs():
        if job.where in silent:
            continue
        try:
            refresh(job, backend_of(job), log)
        except CodingModelError as error:
            silent.add(job.where)
            options.warn(f"{job.name}: {error}")
    found = log.jobs()
    if not found:
        raise ConfigError(
            f"--jobs={jobs}: no jobs in this folder's log; submit one with `jobs submit`"
        )
    if out is not None:
        out.write_text(table(found))
        print(out)
        return
    rows = ([cells_of(job)[column] for column in _COLUMNS] for job in reversed(found))
    print_table(_COLUMNS, rows, left=len(_COLUMNS))


@app.command()
def logs(
    name: str = option(..., _NAME),
    jobs: Path = option(_JOBS, _FOLDER),
    follow: bool = option(False, "Keep printing until the job ends.", "--follow -f"),
) -> None:
    """Print a job's output. With --follow, exit code 1 unless the job finishes."""
    from coding_model_project.launch.jobs import control

    job, runner, log = _of(name, jobs)
    parts: Iterable[bytes] = control.follow(job, runner, log) if follow else [runner.log(job)]
    for part in parts:
        sys.stdout.buffer.write(part)
        sys.stdout.flush()
    if follow and (state := log.job(name).state) is not JobState.finished:
        options.warn(f"{name}: {state}")
        raise typer.Exit(1)


@app.command()
def stop(
    name: str = option(..., _NAME),
    jobs: Path = option(_JOBS, _FOLDER),
    wait: float = option(900, "Wait N seconds for the checkpoint, then kill the job.", min=0),
    now: bool = option(False, "Kill the job immediately, without a checkpoint."),
) -> None:
    """Make a job save a checkpoint and end. A job with the same coding.run_dir resumes from it."""
    from coding_model_project.launch.jobs import control

    job, runner, log = _of(name, jobs)
    job = control.stop(job, runner, log, wait_s=None if now else wait, say=say)
    print(f"{name}: {job.state}")


@app.command()
def fetch(
    name: str = option(..., _NAME),
    out: Path = option(..., "Copy the run's folder to this folder."),
    jobs: Path = option(_JOBS, _FOLDER),
    checkpoints: bool = option(False, "Also copy checkpoints."),
    source: str | None = option(None, "Copy from this folder or URL.", "--from"),
) -> None:
    """Copy a job's run folder, during or after the run; repeating it copies only what changed.

    Copies from `coding.run_dir` if this machine can read it, else from its mirror (`coding.mirror.url`).
    """
    from coding_model_project.launch.jobs.control import fetch as fetch_run
    from coding_model_project.launch.jobs.control import source_of

    where = source_of(_of(name, jobs)[0]) if source is None else source
    done = fetch_run(where, out, checkpoints=checkpoints)
    print(f"{out}: {done.copied} files copied from {redacted(where)}, {done.kept} unchanged")


def _of(name: str, jobs: Path) -> tuple[Job, Backend, JobLog]:
    from coding_model_project.launch.jobs.control import JobLog

    log = JobLog(jobs)
    job = log.job(name)
    return job, backend_of(job), log


def _refuse_others(context: typer.Context, backend: str) -> None:
    """Refuse options of other back ends.

    Raises:
        ConfigError: one is on the command line.
    """
    for parameter in context.command.params:
        owner = (getattr(parameter, "rich_help_panel", None) or backend).lower()
        source = context.get_parameter_source(parameter.name or "")
        if owner != backend and source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"{parameter.opts[0]}: only available with --backend {owner}")


def _check_choice(key: str, given: str, known: Iterable[str]) -> None:
    if given not in known:
        raise ConfigError(f"{key}={given}: expected {', '.join(known)}")
