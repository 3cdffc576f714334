"""Back ends by name, each imported only where it is used, since two need an extra."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra
from coding_model_project.launch.jobs.backend_options import (
    RayOptions,
    SageMakerOptions,
    SlurmOptions,
)
from coding_model_project.launch.jobs.base import Backend, Job


def backend_of(
    job: Job, options: RayOptions | SlurmOptions | SageMakerOptions | None = None
) -> Backend:
    """Return the back end of a job.

    Args:
        options: the back end's; only a submission needs them.
    """
    given: dict[str, Any] = {} if options is None else asdict(options)
    match job.backend:
        case "local":
            from coding_model_project.launch.jobs.local import LocalBackend

            return LocalBackend()
        case "ray":
            with extra("ray"):
                from coding_model_project.launch.jobs.ray_jobs import RayBackend

            return RayBackend(address=job.target, **given)
        case "slurm":
            from coding_model_project.launch.jobs.slurm import SlurmBackend

            return SlurmBackend(**given)
        case "sagemaker":
            with extra("sagemaker"):
                from coding_model_project.launch.jobs.sagemaker import SageMakerBackend

            return SageMakerBackend(region=job.target, **given)
    raise ConfigError(f"--backend={job.backend}: no such back end")
