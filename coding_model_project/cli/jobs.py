"""The `jobs` command group: run recipes on other machines, and fetch their results."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands
from coding_model_project.cli.common import say
from coding_model_project.cli.jobs_submit import submit
from coding_model_project.config_key import option
from coding_model_project.errors import CodingModelError, ConfigError

if TYPE_CHECKING:
    from coding_model_project.launch.jobs.base import Backend, Job
    from coding_model_project.launch.jobs.job_log import Entry, JobLog

app = Commands(
    help="Run recipes on this machine's GPUs, a Ray cluster, Slurm or SageMaker.",
    no_args_is_help=True,
)

_COLUMNS = ("name", "where", "state", "recipe", "commit", "patch", "submitted", "description")
Name = Annotated[str, typer.Argument(help="The job's name, as `jobs list` shows it.")]
app.command(context_settings={"ignore_unknown_options": True})(submit)


@app.command("list")
def list_jobs(
    jobs: options.JobsFolder = options.JOBS_FOLDER,
    out: Path | None = option(None, "Write the table to this Markdown file."),
    offline: bool = option(False, "Show the last known states."),
) -> None:
    """List all jobs, newest first: state, command, commit, folder, times."""
    from rich.console import Console
    from rich.table import Table

    from coding_model_project.launch.jobs.control import refresh
    from coding_model_project.launch.jobs.job_log import JobLog, cells_of, table

    log = JobLog(jobs)
    silent: set[str] = set()  # queried once: an unreachable head takes long to time out
    for entry in () if offline else log.entries().values():
        where = entry.job.where
        if where in silent:
            continue
        try:
            refresh(entry, _backend(entry.job), log)
        except CodingModelError as error:
            silent.add(where)
            print(f"{entry.job.name}: {error}", file=sys.stderr)
    entries = log.entries()
    if not entries:
        raise ConfigError(
            f"--jobs={jobs}: no jobs in this folder's log; submit one with `jobs submit`"
        )
    if out is not None:
        out.write_text(table(entries))
        print(out)
        return
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in _COLUMNS:
        shown.add_column(column, overflow="fold")
    for entry in reversed(entries.values()):
        cells = cells_of(entry)
        shown.add_row(*(cells[column] for column in _COLUMNS))
    Console().print(shown)


@app.command()
def logs(
    name: Name,
    jobs: options.JobsFolder = options.JOBS_FOLDER,
    follow: bool = option(False, "Keep printing until the job ends.", "--follow -f"),
) -> None:
    """Print a job's output. With --follow, exit code 1 unless the job finishes."""
    from coding_model_project.launch.jobs import control
    from coding_model_project.launch.jobs.base import JobState

    log, entry, runner = _of(name, jobs)
    parts: Iterable[bytes] = (
        control.follow(entry, runner, log) if follow else [runner.log(entry.job)]
    )
    for part in parts:
        sys.stdout.buffer.write(part)
        sys.stdout.flush()
    if follow and log.entry(name).state is not JobState.finished:
        print(f"{name}: {log.entry(name).state}", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def stop(
    name: Name,
    jobs: options.JobsFolder = options.JOBS_FOLDER,
    wait: float = option(900, "Wait N seconds for the checkpoint, then kill the job.", min=0),
    now: bool = option(False, "Kill the job immediately, without a checkpoint."),
) -> None:
    """Make a job save a checkpoint and end. A job with the same coding.run_dir resumes from it."""
    from coding_model_project.launch.jobs import control

    log, entry, runner = _of(name, jobs)
    state = control.stop(entry, runner, log, wait_s=None if now else wait, say=say)
    print(f"{name}: {state}")


@app.command()
def fetch(
    name: Name,
    out: Path = option(..., "Copy the run's folder to this folder."),
    jobs: options.JobsFolder = options.JOBS_FOLDER,
    checkpoints: bool = option(False, "Also copy checkpoints."),
    source: str | None = option(None, "Copy from this folder or URL.", "--from"),
) -> None:
    """Copy a job's run folder, during or after the run; repeating it copies only what changed.

    Copies from `coding.run_dir` if this machine can read it, else from its mirror (`coding.mirror.url`).
    """
    from coding_model_project.launch.jobs.fetch import fetch as fetch_run
    from coding_model_project.launch.jobs.fetch import source_of

    job = _of(name, jobs)[1].job
    done = fetch_run(
        source_of(job) if source is None else source,
        out,
        checkpoints=checkpoints,
        is_mirror=job.backend != "sagemaker",  # which copies the run's folder itself
    )
    print(f"{out}: {done.copied} files copied from {done.source}, {done.kept} unchanged")


def _of(name: str, jobs: Path) -> tuple[JobLog, Entry, Backend]:
    from coding_model_project.launch.jobs.job_log import JobLog

    log = JobLog(jobs)
    entry = log.entry(name)
    return log, entry, _backend(entry.job)


def _backend(job: Job) -> Backend:
    from coding_model_project.launch.jobs.backends import backend_of

    return backend_of(job)
