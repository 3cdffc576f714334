"""The `jobs submit` command: run a recipe as a job, from the current working tree."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import JOBS_FOLDER, JobsFolder, named_values
from coding_model_project.errors import ConfigError

_RAY, _SLURM, _AWS, _LOCAL = "Ray", "Slurm", "SageMaker", "Local"


def submit(
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
    gpus: Annotated[
        str,
        typer.Option(help="Use these GPUs, such as 0,1. Default: none.", rich_help_panel=_LOCAL),
    ] = "",
    address: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_API_SERVER_ADDRESS",
            help="Submit to the Ray dashboard at this URL, such as http://HEAD:8265.",
            rich_help_panel=_RAY,
        ),
    ] = None,
    driver_cpus: Annotated[
        float, typer.Option(help="Reserve N CPUs for the driver.", min=0, rich_help_panel=_RAY)
    ] = 1,
    driver_gpus: Annotated[
        float, typer.Option(help="Reserve N GPUs for the driver.", min=0, rich_help_panel=_RAY)
    ] = 0,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="Place the driver on a node with this resource; repeatable.",
            rich_help_panel=_RAY,
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set an environment variable in the job, visible on the dashboard; repeatable.",
            rich_help_panel=_RAY,
        ),
    ] = None,
    any_version: Annotated[
        bool,
        typer.Option(
            "--any-version", help="Accept a Ray head of another version.", rich_help_panel=_RAY
        ),
    ] = False,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION",
            help="Pass this option to sbatch, such as --sbatch=--gres=gpu:8; repeatable.",
            rich_help_panel=_SLURM,
        ),
    ] = None,
    signal_s: Annotated[
        int,
        typer.Option(
            help="Save a checkpoint N seconds before the job's time limit.",
            min=1,
            rich_help_panel=_SLURM,
        ),
    ] = 900,
    region: Annotated[
        str | None,
        typer.Option(envvar="AWS_REGION", help="Run in this AWS region.", rich_help_panel=_AWS),
    ] = None,
    instance_type: Annotated[
        str,
        typer.Option(
            help="Run on this instance type, such as ml.p5.48xlarge.", rich_help_panel=_AWS
        ),
    ] = "",
    role: Annotated[
        str, typer.Option(help="Run with this IAM role (an ARN).", rich_help_panel=_AWS)
    ] = "",
    s3: Annotated[
        str, typer.Option(help="Keep the run's folder at this s3:// URL.", rich_help_panel=_AWS)
    ] = "",
    image: Annotated[
        str, typer.Option(help="Run in this image, by its ECR URI.", rich_help_panel=_AWS)
    ] = "",
    build: Annotated[
        bool, typer.Option("--build", help="Build the image first.", rich_help_panel=_AWS)
    ] = False,
    push: Annotated[
        bool, typer.Option("--push", help="Push the image first.", rich_help_panel=_AWS)
    ] = False,
    containerfile: Annotated[
        Path | None,
        typer.Option(help="Build the image from this file. Default: ours.", rich_help_panel=_AWS),
    ] = None,
    max_hours: Annotated[
        float, typer.Option(help="End the job after N hours.", min=0.1, rich_help_panel=_AWS)
    ] = 24,
) -> None:
    """Run a recipe as a job, from the current working tree, and print the job's name.

    A job with the coding.run_dir of an earlier one resumes its run.
    """
    from coding_model_project.launch.jobs import image as images
    from coding_model_project.launch.jobs.backends import NAMES, backend_of
    from coding_model_project.launch.jobs.base import JOB_RECIPES, Evaluation, Job
    from coding_model_project.launch.jobs.control import submit as submit_job
    from coding_model_project.launch.jobs.job_log import JobLog
    from coding_model_project.launch.jobs.names import check_name, new_name
    from coding_model_project.launch.jobs.source import read_source

    _check_choice("recipe", recipe, JOB_RECIPES)
    _check_choice("--backend", backend, NAMES)
    if anonymous and name is not None:
        raise ConfigError("--anonymous and --name exclude each other; pass one of them")
    if eval_gpus and not with_evaluation:
        raise ConfigError(f"--eval-gpus={eval_gpus}: needs --with-evaluation")
    if eval_arguments and not with_evaluation:
        raise ConfigError(f"--eval-arguments={eval_arguments}: needs --with-evaluation")
    for owner, theirs in {
        "local": {"--gpus": gpus},
        "ray": {"--driver-gpus": driver_gpus, "--resource": resource, "--env": env},
        "slurm": {"--sbatch": sbatch},
        "sagemaker": {
            "--instance-type": instance_type,
            "--role": role,
            "--s3": s3,
            "--image": image,
            "--build": build,
            "--push": push,
        },
    }.items():
        foreign = next((option for option, value in theirs.items() if value), None)
        if foreign is not None and backend != owner:
            raise ConfigError(f"{foreign}: only available with --backend {owner}")
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
    given, run_dir = _with_run_dir(backend, overrides or (), chosen)
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
        mirror=s3 if backend == "sagemaker" else _value(given, "coding.mirror.url") or "",
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

    if push:
        images.ecr_name(image, target)  # before the build, which may take long

    def make_image(package: Path) -> None:
        if build:
            images.build(package, image, containerfile or images.CONTAINERFILE)
        if push:
            images.push(image, target)

    submit_job(runner, job, source, log, prepare=make_image)
    dirty = f" with changes {source.patch_hash[:12]}" if source.patch else ""
    print(chosen)
    print(f"commit {source.commit[:12]}{dirty}; run folder {run_dir}", file=sys.stderr)


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


def _with_run_dir(backend: str, overrides: Iterable[str], name: str) -> tuple[tuple[str, ...], str]:
    """Return the overrides with the run folder's path in the job, and that path.

    Raises:
        ConfigError: the backend requires `coding.run_dir` and it is missing, or forbids it.
    """
    from coding_model_project.launch.jobs.sagemaker import RUN_DIR

    given = tuple(overrides)
    flags = [one for one in given if "=" not in one and not one.startswith("~")]
    if flags:
        raise ConfigError(f"{flags[0]}: expected key=value; jobs take no recipe flags")
    chosen = _value(given, "coding.run_dir")
    if backend == "sagemaker":
        if chosen is not None:
            raise ConfigError(
                f"coding.run_dir={chosen}: fixed on SageMaker ({RUN_DIR}); remove it, and pass --s3 URL "
                "to store the run"
            )
        return (*given, f"coding.run_dir={RUN_DIR}"), RUN_DIR
    if backend == "ray":
        if chosen is None:
            raise ConfigError(
                "coding.run_dir: required with --backend ray; pass an absolute path on the cluster's "
                "shared disk"
            )
        return given, chosen
    path = str(Path(chosen or f"outputs/{name}").expanduser().absolute())
    rest = tuple(one for one in given if not one.startswith("coding.run_dir="))
    return (*rest, f"coding.run_dir={path}"), path


def _value(overrides: tuple[str, ...], key: str) -> str | None:
    from coding_model_project.launch.jobs.base import value_of

    return value_of(overrides, key)


def _check_choice(key: str, given: str, known: Iterable[str]) -> None:
    if given not in known:
        raise ConfigError(f"{key}={given}: expected {', '.join(known)}")


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--resource={name}={text}: expected a number") from None
