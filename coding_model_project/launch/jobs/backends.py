"""Back ends by name, each imported only where it is used, since two need an extra."""

from __future__ import annotations

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
