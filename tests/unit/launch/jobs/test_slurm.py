"""Slurm's commands, by stand-ins: answers that a healthy cluster does not give."""

from __future__ import annotations

import os

import pytest

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.base import JobState
from coding_model_project.launch.jobs.slurm import SlurmBackend
from tests.unit.launch.jobs.conftest import make_job


@pytest.fixture
def slurm_job(tmp_path):
    return make_job(tmp_path, backend="slurm", target="", handle={"id": "7"})


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Return a function that replaces a Slurm command by a shell script."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def replace(name: str, script: str) -> None:
        file = tmp_path / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return replace


@pytest.mark.parametrize(
    ("exit_code", "state"),
    [
        ("0:9", JobState.stopped),
        ("0:53", JobState.failed),  # Slurm could not open the log file
        ("1:0", JobState.failed),
        ("130:0", JobState.interrupted),
    ],
)
def test_a_failed_job_never_counts_as_finished(slurm_job, command, exit_code, state):
    command("scontrol", f"echo JobId=7 JobName=sft-1 JobState=FAILED ExitCode={exit_code}")
    assert SlurmBackend().state(slurm_job) is state


@pytest.mark.parametrize("name", ["scontrol", "scancel"])
def test_a_controller_that_times_out_is_a_job_error(slurm_job, command, name):
    command(name, "echo 'slurm error: Socket timed out on send/recv operation' >&2; exit 1")
    call = SlurmBackend().state if name == "scontrol" else SlurmBackend().kill
    with pytest.raises(JobError, match="timed out"):
        call(slurm_job)


@pytest.mark.parametrize(
    ("option", "refused"),
    [
        ("--time=15", True),
        ("--time=14:59", True),
        ("--time=0-0:10", True),
        ("--time=16", False),
        ("--time=1:00:00", False),
        ("--time=1-12", False),
        ("--time=UNLIMITED", False),
        ("--nodes=4", True),
        ("--nodes=1", False),
    ],
)
def test_limits_that_cannot_work_are_refused(tmp_path, command, option, refused):
    command("sbatch", "echo slurm 22.05")
    job = make_job(tmp_path, backend="slurm", target="", overrides=("hardware=cpu",))
    backend = SlurmBackend(options=(option,))
    if not refused:
        backend.check(job)
        return
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        backend.check(job)
