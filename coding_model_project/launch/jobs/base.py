"""A job, its state, its name and run folder; the protocol of a back end, and the options of each."""

from __future__ import annotations

import re
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from coding_model_project.config_key import option
from coding_model_project.errors import INTERRUPTED, ConfigError
from coding_model_project.extras import RECIPES, extra

JOB_RECIPES = tuple(name for name in RECIPES if name not in ("demo", "pipeline"))
"""Recipes that write one run folder, `coding.run_dir`; `stop` and `fetch` need one."""
SAGEMAKER_RUN_DIR = "/opt/ml/checkpoints"
"""`coding.run_dir` of every job on SageMaker, which copies this folder to S3."""
_MAX_NAME = 63
_VALID_NAME = re.compile(r"[a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*")
"""SageMaker's rule, the strictest: Ray accepts any text as a submission id, Slurm any name."""
IN_DRIVER = ("sft", "dpo")
"""Recipes that train in the job's driver; the others train in Ray workers."""


class JobState(StrEnum):
    """The state of a job."""

    pending = "pending"
    running = "running"
    finished = "finished"
    interrupted = "interrupted"
    """Stopped on request after saving a checkpoint; the same command resumes it."""
    failed = "failed"
    stopped = "stopped"
    """Killed; steps since its last checkpoint are lost."""
    refused = "refused"
    """Never submitted; its name can be reused."""
    unknown = "unknown"
    """Missing from the back end's records, or the back end does not answer."""

    @property
    def ended(self) -> bool:
        return self not in (JobState.pending, JobState.running, JobState.unknown)


def state_of_exit(code: int) -> JobState:
    """Return the state of a job from its command's exit code."""
    ways = {0: JobState.finished, INTERRUPTED: JobState.interrupted}
    killed = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    return JobState.stopped if code in killed else ways.get(code, JobState.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The evaluation of checkpoints that runs beside a training, in the same job."""

    gpus: int
    """Number of the job's GPUs, the last ones, that evaluate; 0 without GPUs to split."""
    arguments: str = ""
    """Extra arguments of `eval run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A recipe's command, for a back end to run, and what is known of it."""

    name: str
    backend: str
    options: Mapping[str, Any]
    """Fields of the back end's options."""
    recipe: str
    overrides: tuple[str, ...]
    run_dir: str
    """`coding.run_dir` on the machine where the job runs."""
    folder: str
    """Folder on this machine with the job's record, log, script, shipped source and patch."""
    cwd: str
    commit: str
    patch: str
    """SHA-256 of the uncommitted changes; empty if there were none."""
    submitted: float
    description: str = ""
    mirror: str = ""
    """URL that the run's folder is mirrored to; empty if it is not."""
    evaluation: Evaluation | None = None
    handle: Mapping[str, str] = field(default_factory=dict)
    """The back end's identifiers of the job."""
    state: JobState = JobState.unknown
    """The last state that was observed."""
    ended: float | None = None

    @property
    def where(self) -> str:
        """Return the back end, with its address, region or GPUs."""
        places = (self.options.get(name) for name in ("address", "region", "gpus"))
        return " ".join([self.backend, *filter(None, places)])

    def words(self, python: str) -> list[str]:
        """Return the command that the job runs; `python` is the interpreter where it runs."""
        recipe = [f"recipes.{self.recipe}", *self.overrides]
        if (evaluation := self.evaluation) is None:
            return [python, "-m", *recipe]
        beside = ["--gpus", str(evaluation.gpus), f"--arguments={evaluation.arguments}"]
        return [python, "-m", "coding_model_project.launch.jobs.beside", *beside, "--", *recipe]

    @property
    def command(self) -> str:
        """Return the recipe's command, as one would type it."""
        return " ".join(["python -m", f"recipes.{self.recipe}", *self.overrides])


class Backend(Protocol):
    """Something that runs jobs.

    Every method raises `ConfigError` for errors that the user can correct, and `JobError` if the
    machine, cluster or service fails.
    """

    def check(self, job: Job) -> None:
        """Refuse a job that cannot work here; called before anything is written or sent."""
        ...

    def text(self, job: Job) -> str:
        """Return the script or command that the job runs."""
        ...

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        """Start a job from a package of the working tree.

        Returns:
            The job's handle. Without one, because the answer was lost, the job's name is enough.
        """
        ...

    def state(self, job: Job) -> JobState:
        """Return the job's state; unknown if the back end has no job of this name."""
        ...

    def log(self, job: Job) -> bytes:
        """Return the job's output so far."""
        ...

    def ask_to_stop(self, job: Job) -> bool:
        """Request that the run saves a checkpoint and ends.

        Returns:
            False if there is nothing to save, because the job has not begun to train.
        """
        ...

    def kill(self, job: Job) -> None:
        """Kill the job; do nothing if it has ended."""
        ...


def value_of(overrides: Sequence[str], key: str) -> str | None:
    """Return the value that the overrides give a key; None if they do not set it, or set it to null."""
    from coding_model_project.launch.verl_keys.tree import parsed

    own = [one for one in overrides if one.lstrip("+").startswith(f"{key}=")]
    found = parsed(own[-1]) if own else None
    value = found.value() if found else None
    return None if value is None else str(value)


def override(key: str, value: str) -> str:
    """Return an override in Hydra's grammar, quoted if the value needs it."""
    plain = f"{key}={value}"
    if value_of([plain], key) == value:
        return plain
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    return f"{key}='{escaped}'"


def with_run_dir(backend: str, given: tuple[str, ...], name: str) -> tuple[tuple[str, ...], str]:
    """Return the overrides with the run folder's path in the job, and that path.

    Raises:
        ConfigError: the backend requires `coding.run_dir` and it is missing, or forbids it.
    """
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


def require_hardware(job: Job) -> None:
    """Refuse a job whose hardware profile would depend on the node that its driver lands on.

    Raises:
        ConfigError: `hardware` is not set.
    """
    if value_of(job.overrides, "hardware") is None:
        raise ConfigError(
            "hardware=: not set, and the driver's node need not have the workers' GPUs; add "
            "hardware=cpu, gpu_1x, gpu_8x or gpu_multi"
        )


def check_name(name: str) -> None:
    """Refuse a name that some back end would reject.

    Raises:
        ConfigError: the name is not valid.
    """
    if len(name) > _MAX_NAME or not _VALID_NAME.fullmatch(name):
        raise ConfigError(
            f"--name={name}: expected at most {_MAX_NAME} letters, digits and dashes, with a "
            "letter or digit at both ends"
        )


def new_name(recipe: str, *, anonymous: bool) -> str:
    """Return a name made of the recipe and the time, or a random one."""
    if anonymous:
        return f"job-{secrets.token_hex(6)}"
    return f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


# ── back ends ─────────────────────────────────────────────────────────────────────────────────────────


def backend_of(job: Job) -> Backend:
    """Return the back end of a job, with the options of its submission."""
    match job.backend:
        case "local":
            from coding_model_project.launch.jobs.script_jobs import LocalBackend as Chosen
        case "ray":
            with extra("ray"):
                from coding_model_project.launch.jobs.ray_jobs import RayBackend as Chosen
        case "slurm":
            from coding_model_project.launch.jobs.script_jobs import SlurmBackend as Chosen
        case "sagemaker":
            with extra("sagemaker"):
                from coding_model_project.launch.jobs.sagemaker import SageMakerBackend as Chosen
        case _:
            raise ConfigError(f"--backend={job.backend}: no such back end")
    return Chosen(**job.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    gpus: str = option("", "Use these GPUs, such as 0,1. Default: none.", panel="Local")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    address: str = option(
        "",
        "Submit to the Ray dashboard at this URL, such as http://HEAD:8265.",
        envvar="RAY_API_SERVER_ADDRESS",
        panel="Ray",
    )
    driver_cpus: float = option(1, "Reserve N CPUs for the driver.", min=0, panel="Ray")
    """Not 0, so that the driver does not run on a head started with 0 CPUs."""
    driver_gpus: float = option(0, "Reserve N GPUs for the driver.", min=0, panel="Ray")
    resource: dict[str, float] = option(
        {},
        "Place the driver on a node with this resource; repeatable.",
        metavar="NAME=N",
        panel="Ray",
    )
    env: dict[str, str] = option(
        {},
        "Set an environment variable in the job, visible on the dashboard; repeatable.",
        metavar="NAME=VALUE",
        panel="Ray",
    )
    any_version: bool = option(False, "Accept a Ray head of another version.", panel="Ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    sbatch: list[str] = option(
        [],
        "Pass this option to sbatch, such as --sbatch=--gres=gpu:8; repeatable.",
        metavar="OPTION",
        panel="Slurm",
    )
    signal_s: int = option(
        900, "Save a checkpoint N seconds before the job's time limit.", min=1, panel="Slurm"
    )
    """Slurm signals the job then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerOptions:
    region: str = option("", "Run in this AWS region.", envvar="AWS_REGION", panel="SageMaker")
    s3: str = option("", "Keep the run's folder at this s3:// URL.", panel="SageMaker")
    instance_type: str = option(
        "", "Run on this instance type, such as ml.p5.48xlarge.", panel="SageMaker"
    )
    role: str = option("", "Run with this IAM role (an ARN).", panel="SageMaker")
    image: str = option("", "Run in this image, by its ECR URI.", panel="SageMaker")
    max_hours: float = option(24, "End the job after N hours.", min=0.1, panel="SageMaker")
