"""The `jobs submit` command: run a recipe as a job, from the current working tree."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import JOBS_FOLDER, JobsFolder, named_values
from coding_model_project.errors import ConfigError

_PANELS = {"local": "Local", "ray": "Ray", "slurm": "Slurm", "sagemaker": "SageMaker"}
"""Title of each back end's own options in the help."""
_local, _ray, _slurm, _aws = (
    partial(typer.Option, rich_help_panel=panel) for panel in _PANELS.values()
)


def submit(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="The recipe: sft, dpo, grpo, ….")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="key=value...", help="The recipe's overrides.")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Run the job on `local`, `ray`, `slurm` or `sagemaker`.")
    ] = "local",
    name: Annotated[
        str | None, typer.Option(help="Name the job. Default: its recipe and the time.")
    ] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Use a random name that reveals nothing.")
    ] = False,
    description: Annotated[str, typer.Option(help="Describe the job in the job log.")] = "",
    repo: Annotated[
        Path, typer.Option(help="Ship the git working tree that contains this folder.")
    ] = Path(),
    max_package_mb: Annotated[
        float, typer.Option(help="Refuse to ship a working tree larger than N MB.", min=0.1)
    ] = 100,
    jobs: JobsFolder = JOBS_FOLDER,
    check: Annotated[
        bool, typer.Option("--check", help="Check the job, print what it would run, and end.")
    ] = False,
    with_evaluation: Annotated[
        bool,
        typer.Option(
            "--with-evaluation", help="Evaluate each checkpoint in the same job (`watch`)."
        ),
    ] = False,
    eval_gpus: Annotated[
        int, typer.Option(help="Reserve the last N of the job's GPUs for evaluations.", min=0)
    ] = 0,
    eval_arguments: Annotated[
        str,
        typer.Option(
            help="Add these options to `eval run`, such as --eval-arguments='--dataset mbpp_reg --n 4'."
        ),
    ] = "",
    gpus: Annotated[str, _local(help="Use these GPUs, such as 0,1. Default: none.")] = "",
    address: Annotated[
        str | None,
        _ray(
            envvar="RAY_API_SERVER_ADDRESS",
            help="Submit to the Ray dashboard at this URL, such as http://HEAD:8265.",
        ),
    ] = None,
    driver_cpus: Annotated[float, _ray(help="Reserve N CPUs for the driver.", min=0)] = 1,
    driver_gpus: Annotated[float, _ray(help="Reserve N GPUs for the driver.", min=0)] = 0,
    resource: Annotated[
        list[str] | None,
        _ray(metavar="NAME=N", help="Place the driver on a node with this resource; repeatable."),
    ] = None,
    env: Annotated[
        list[str] | None,
        _ray(
            metavar="NAME=VALUE",
            help="Set an environment variable in the job, visible on the dashboard; repeatable.",
        ),
    ] = None,
    any_version: Annotated[
        bool, _ray("--any-version", help="Accept a Ray head of another version.")
    ] = False,
    sbatch: Annotated[
        list[str] | None,
        _slurm(
            metavar="OPTION",
            help="Pass this option to sbatch, such as --sbatch=--gres=gpu:8; repeatable.",
        ),
    ] = None,
    signal_s: Annotated[
        int, _slurm(help="Save a checkpoint N seconds before the job's time limit.", min=1)
    ] = 900,
    region: Annotated[str | None, _aws(envvar="AWS_REGION", help="Run in this AWS region.")] = None,
    instance_type: Annotated[
        str, _aws(help="Run on this instance type, such as ml.p5.48xlarge.")
    ] = "",
    role: Annotated[str, _aws(help="Run with this IAM role (an ARN).")] = "",
    s3: Annotated[str, _aws(help="Keep the run's folder at this s3:// URL.")] = "",
    image: Annotated[str, _aws(help="Run in this image, by its ECR URI.")] = "",
    max_hours: Annotated[float, _aws(help="End the job after N hours.", min=0.1)] = 24,
) -> None:
    """Run a recipe as a job, from the current working tree, and print the job's name.

    A job with the coding.run_dir of an earlier one resumes its run.
    """
    from coding_model_project.launch.jobs.backends import backend_of
    from coding_model_project.launch.jobs.base import JOB_RECIPES, Evaluation, Job, value_of
    from coding_model_project.launch.jobs.control import submit as submit_job
    from coding_model_project.launch.jobs.job_log import JobLog
    from coding_model_project.launch.jobs.names import check_name, new_name
    from coding_model_project.launch.jobs.source import read_source

    _check_choice("recipe", recipe, JOB_RECIPES)
    _check_choice("--backend", backend, _PANELS)
    _refuse_others(context, backend)
    if anonymous and name is not None:
        raise ConfigError("--anonymous and --name exclude each other; pass one of them")
    if eval_gpus and not with_evaluation:
        raise ConfigError(f"--eval-gpus={eval_gpus}: needs --with-evaluation")
    if eval_arguments and not with_evaluation:
        raise ConfigError(f"--eval-arguments={eval_arguments}: needs --with-evaluation")
    chosen = name if name is not None else new_name(recipe, anonymous=anonymous)
    check_name(chosen)
    target, options = {
        "local": (gpus.replace(" ", ""), {}),
        "ray": (
            address,
            {
                "driver_cpus": driver_cpus,
                "driver_gpus": driver_gpus,
                "resources": {
                    k: _number(k, v) for k, v in named_values("--resource", resource).items()
                },
                "environment": named_values("--env", env),
                "any_version": any_version,
            },
        ),
        "slurm": ("", {"options": tuple(sbatch or ()), "signal_s": signal_s}),
        "sagemaker": (
            region,
            {"role": role, "image": image, "instance_type": instance_type, "max_hours": max_hours},
        ),
    }[backend]
    if target is None:
        option = {"ray": "--address", "sagemaker": "--region"}[backend]
        raise ConfigError(f"{option}: required with --backend {backend}")
    source = read_source(repo, max_mb=max_package_mb)
    log = JobLog(jobs)
    given, run_dir = _with_run_dir(backend, tuple(overrides or ()), chosen)
    job = Job(
        name=chosen,
        backend=backend,
        target=target,
        recipe=recipe,
        overrides=given,
        run_dir=run_dir,
        folder=str(log.folder / chosen),
        cwd=str(Path.cwd()),
        commit=source.commit,
        patch=source.patch_hash,
        submitted=time.time(),
        description=description,
        mirror=s3 or value_of(given, "coding.mirror.url") or "",
        evaluation=Evaluation(gpus=eval_gpus, arguments=eval_arguments)
        if with_evaluation
        else None,
    )
    runner = backend_of(job, options)
    _check_recipe(recipe, given)
    if check:
        runner.check(job)
        print(runner.text(job))
        return
    submit_job(runner, job, source, log)
    dirty = f" with changes {source.patch_hash[:12]}" if source.patch else ""
    print(chosen)
    print(f"commit {source.commit[:12]}{dirty}; run folder {run_dir}", file=sys.stderr)


def _refuse_others(context: typer.Context, backend: str) -> None:
    """Refuse options of other back ends.

    Raises:
        ConfigError: one is on the command line.
    """
    for parameter in context.command.params:
        panel = getattr(parameter, "rich_help_panel", None)
        owner = next((name for name, title in _PANELS.items() if title == panel), backend)
        source = context.get_parameter_source(parameter.name or "")
        if owner != backend and source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"{parameter.opts[0]}: only available with --backend {owner}")


def _check_recipe(recipe: str, given: Sequence[str]) -> None:
    """Check the recipe's configuration, since a job may wait for long before it finds a wrong key.

    It needs verl for the recipes that train. A login node may have none.

    Raises:
        ConfigError: a key or value is wrong.
    """
    from importlib.util import find_spec

    from coding_model_project.launch.checks import checks
    from coding_model_project.launch.compose import compose_recipe

    if recipe == "baseline" or find_spec("verl") is not None:
        checks.check_values(compose_recipe(recipe, list(given)))


def _with_run_dir(backend: str, given: tuple[str, ...], name: str) -> tuple[tuple[str, ...], str]:
    """Return the overrides with the run folder's path in the job, and that path.

    Raises:
        ConfigError: the backend requires `coding.run_dir` and it is missing, or forbids it.
    """
    from coding_model_project.launch.jobs.base import SAGEMAKER_RUN_DIR, override, value_of

    flags = [one for one in given if "=" not in one and not one.startswith("~")]
    if flags:
        raise ConfigError(f"{flags[0]}: expected key=value; jobs take no recipe flags")
    chosen = value_of(given, "coding.run_dir")
    if backend == "sagemaker" and chosen is not None:
        raise ConfigError(
            f"coding.run_dir={chosen}: fixed on SageMaker ({SAGEMAKER_RUN_DIR}); remove it, and pass "
            "--s3 URL to store the run"
        )
    if backend == "ray" and chosen is None:
        raise ConfigError(
            "coding.run_dir: required with --backend ray; pass an absolute path on the cluster's "
            "shared disk"
        )
    if backend == "sagemaker":
        path = SAGEMAKER_RUN_DIR
    elif backend == "ray":
        path = chosen or ""
    else:
        path = str(Path(chosen or f"outputs/{name}").expanduser().absolute())
    rest = tuple(one for one in given if not one.lstrip("+").startswith("coding.run_dir="))
    return (*rest, override("coding.run_dir", path)), path


def _check_choice(key: str, given: str, known: Iterable[str]) -> None:
    if given not in known:
        raise ConfigError(f"{key}={given}: expected {', '.join(known)}")


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--resource={name}={text}: expected a number") from None
