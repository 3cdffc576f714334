"""Options of back ends that only a submission needs; the back ends' classes have them as fields.

They are apart from the back ends, two of which need an extra, so that `jobs submit` can show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coding_model_project.config_key import option

RAY_PANEL, SLURM_PANEL, SAGEMAKER_PANEL = "Ray", "Slurm", "SageMaker"
"""Titles of each back end's options in the help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    driver_cpus: float = option(1, "Reserve N CPUs for the driver.", min=0, panel=RAY_PANEL)
    """Not 0, so that the driver does not run on a head started with 0 CPUs."""
    driver_gpus: float = option(0, "Reserve N GPUs for the driver.", min=0, panel=RAY_PANEL)
    resources: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    any_version: bool = option(False, "Accept a Ray head of another version.", panel=RAY_PANEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    options: tuple[str, ...] = ()
    """Options of `sbatch`, such as `--gres=gpu:8`."""
    signal_s: int = option(
        900,
        "Save a checkpoint N seconds before the job's time limit.",
        min=1,
        panel=SLURM_PANEL,
    )
    """Slurm signals the job then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerOptions:
    instance_type: str = option(
        "", "Run on this instance type, such as ml.p5.48xlarge.", panel=SAGEMAKER_PANEL
    )
    role: str = option("", "Run with this IAM role (an ARN).", panel=SAGEMAKER_PANEL)
    image: str = option("", "Run in this image, by its ECR URI.", panel=SAGEMAKER_PANEL)
    max_hours: float = option(24, "End the job after N hours.", min=0.1, panel=SAGEMAKER_PANEL)
