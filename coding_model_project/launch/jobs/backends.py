"""Back ends by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.launch.jobs.base import Backend, Job
from coding_model_project.launch.jobs.local import LocalBackend
from coding_model_project.launch.jobs.ray_rest import RayBackend
from coding_model_project.launch.jobs.sagemaker import SageMakerBackend
from coding_model_project.launch.jobs.slurm import SlurmBackend

NAMES = ("local", "ray", "slurm", "sagemaker")


def backend_of(job: Job, options: Mapping[str, Any] | None = None) -> Backend:
    """Return the back end of a job.

    Args:
        options: constructor arguments that only `submit` needs.
    """
    given = dict(options or {})
    match job.backend:
        case "local":
            return LocalBackend()
        case "ray":
            return RayBackend(address=job.target, **given)
        case "slurm":
            return SlurmBackend(**given)
        case "sagemaker":
            return SageMakerBackend(region=job.target, **given)
    raise ConfigError(f"--backend={job.backend}: expected {', '.join(NAMES)}")
