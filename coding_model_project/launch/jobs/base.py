"""A job, its state, and the protocol of a back end."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from coding_model_project.errors import INTERRUPTED, ConfigError, JobError
from coding_model_project.program import RECIPES

JOB_RECIPES = tuple(name for name in RECIPES if name not in ("demo", "pipeline"))
"""Recipes that write one run folder, `coding.run_dir`, which `stop` and `fetch` work on."""


class JobState(StrEnum):
    """How a job stands."""

    pending = "pending"
    running = "running"
    finished = "finished"
    interrupted = "interrupted"
    """It was asked to stop and saved a checkpoint; the same command resumes it."""
    failed = "failed"
    stopped = "stopped"
    """It was ended by force: steps since its last checkpoint are lost."""
    refused = "refused"
    """It was never submitted; its name can be used again."""
    unknown = "unknown"
    """The back end has no record of it, or does not answer."""

    @property
    def ended(self) -> bool:
        return self not in (JobState.pending, JobState.running, JobState.unknown)


def state_of_exit(code: int) -> JobState:
    """Return the state of a job whose command ended with an exit code."""
    ways = {0: JobState.finished, INTERRUPTED: JobState.interrupted}
    killed = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    return JobState.stopped if code in killed else ways.get(code, JobState.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The evaluation of checkpoints that runs beside a training, in the same job."""

    gpus: int
    """How many of the job's GPUs evaluate, the last ones; 0 where there are none to split."""
    arguments: str = ""
    """Added to `eval run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A recipe's command that was given to a back end."""

    name: str
    backend: str
    target: str
    """Where it runs: the head's address, the region, the GPUs."""
    recipe: str
    overrides: tuple[str, ...]
    run_dir: str
    """`coding.run_dir` on the machine where the job runs."""
    folder: str
    """On this machine: its log and script, the shipped source, the patch."""
    cwd: str
    commit: str
    patch: str
    """SHA-256 of what was not committed; empty where all was."""
    submitted: float
    description: str = ""
    mirror: str = ""
    """URL under which the run's folder is mirrored, if it is."""
    evaluation: Evaluation | None = None
    handle: Mapping[str, str] = field(default_factory=dict)
    """What the back end knows the job by."""

    @property
    def command(self) -> str:
        """Return the recipe's command, as one would type it."""
        return " ".join(["python -m", f"recipes.{self.recipe}", *self.overrides])


class SubmissionUnknown(JobError):
    """The back end went away while a job was submitted: the job may run, and the log keeps its name."""


class Backend(Protocol):
    """Something that runs jobs.

    Every method raises `ConfigError` for what the user can correct, and `JobError` where the machine,
    cluster or service does not do its part.
    """

    def check(self, job: Job) -> None:
        """Refuse a job that cannot work here, before anything is written or sent."""
        ...

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        """Start a job from a package of the working tree; a repeated call starts no second one.

        Returns:
            Its handle.
        """
        ...

    def state(self, job: Job) -> JobState: ...

    def log(self, job: Job) -> bytes:
        """Return all that the job has printed so far."""
        ...

    def ask_to_stop(self, job: Job) -> bool:
        """Ask the run to save a checkpoint and end.

        Returns:
            False where there is nothing to save: the job has not begun to train.
        """
        ...

    def kill(self, job: Job) -> None:
        """End the job by force; it is no error if it has ended."""
        ...


def value_of(overrides: tuple[str, ...], key: str) -> str | None:
    """Return what the overrides set a key to; None if they do not."""
    given = dict(one.lstrip("+").split("=", 1) for one in overrides if "=" in one)
    return given.get(key)


def require_hardware(job: Job) -> None:
    """Refuse a job that leaves the profile to the machine that its driver happens to land on.

    Raises:
        ConfigError: `hardware` is not set.
    """
    if value_of(job.overrides, "hardware") is None:
        raise ConfigError(
            "hardware=: not set, and the driver's node need not have the workers' GPUs; add "
            "hardware=cpu, gpu_1x, gpu_8x or gpu_multi"
        )
