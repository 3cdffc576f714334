"""A job's command, as words and as a shell script for machines that share this machine's disk.

`job.sh` is the script's template. Slurm's nodes run it, and so does this machine.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import jinja2

from coding_model_project.launch.jobs.base import Job, JobState, state_of_exit, value_of
from coding_model_project.launch.jobs.source import unpack

LOG = "log.txt"
_EXIT = "exit_code"
_SCRIPT = "script.sh"
_TEMPLATE = Path(__file__).with_name("job.sh")


def words(job: Job, python: str) -> list[str]:
    """Return the command that a job runs.

    Args:
        python: the interpreter on the machine where it runs.
    """
    recipe = [f"recipes.{job.recipe}", *job.overrides]
    if job.evaluation is None:
        return [python, "-m", *recipe]
    beside = ["--gpus", str(job.evaluation.gpus), f"--arguments={job.evaluation.arguments}"]
    return [python, "-m", "coding_model_project.launch.jobs.beside", *beside, "--", *recipe]


def script(
    job: Job, *, sbatch: Sequence[str] = (), several: bool = False, gpus: str | None = None
) -> str:
    """Return the script of a job that runs from the unpacked source in its folder.

    Args:
        sbatch: options of `sbatch`; with any, the script belongs to Slurm.
        several: whether Slurm allocates several nodes, on which the recipe needs a Ray cluster.
        gpus: value of CUDA_VISIBLE_DEVICES; None leaves it as the scheduler sets it.
    """
    folder = Path(job.folder)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: shlex.quote(str(value)) if isinstance(value, Path) else value,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(_TEMPLATE.read_text()).render(
        sbatch=sbatch,
        several=several,
        gpus=gpus,
        cwd=Path(job.cwd),
        source=folder / "source",
        exit_file=folder / _EXIT,
        run_dir=Path(job.run_dir),
        python=Path(sys.executable),
        bin=Path(sys.executable).parent,
        recipe=job.recipe,
        command=shlex.join(words(job, sys.executable)),
        nnodes=value_of(job.overrides, "trainer.nnodes"),
    )


def write_script(job: Job, package: Path, text: str) -> Path:
    """Unpack the source into a job's folder, write its script there, and return the script's path."""
    folder = Path(job.folder)
    unpack(package, folder / "source")
    file = folder / _SCRIPT
    file.touch(mode=0o600)  # the overrides of a job may have secrets
    file.write_text(text)
    return file


def written_state(job: Job) -> JobState | None:
    """Return the state of a job from the exit code that its script wrote; None if it wrote none."""
    file = Path(job.folder, _EXIT)
    code = file.read_text().strip() if file.exists() else ""
    return state_of_exit(int(code)) if code else None


def read_log(job: Job) -> bytes:
    """Return the content of a job's log file; empty before it exists."""
    file = Path(job.folder, LOG)
    return file.read_bytes() if file.exists() else b""
