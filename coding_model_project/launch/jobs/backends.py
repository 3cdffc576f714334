"""Back ends by name, each imported only where it is used, since two need an extra."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.config_key import option
from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra
from coding_model_project.launch.jobs.base import Backend, Job


def backend_of(job: Job) -> Backend:
    """Return the back end of a job, with the options of its submission."""
    match job.backend:
        case "local":
            from coding_model_project.launch.jobs.local import LocalBackend as Chosen
        case "ray":
            with extra("ray"):
                from coding_model_project.launch.jobs.ray_jobs import RayBackend as Chosen
        case "slurm":
            from coding_model_project.launch.jobs.slurm import SlurmBackend as Chosen
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
    resource: list[str] = option(
        [],
        "Place the driver on a node with this resource; repeatable.",
        metavar="NAME=N",
        panel="Ray",
    )
    env: list[str] = option(
        [],
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
