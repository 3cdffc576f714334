"""Jobs that are a script: on this machine's GPUs, and under Slurm with stand-ins of its commands.

The stand-ins give answers that a healthy cluster does not give, and several nodes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from zipfile import ZipFile

import pytest

from coding_model_project.errors import INTERRUPTED, ConfigError, JobError
from coding_model_project.launch.jobs import script_jobs
from coding_model_project.launch.jobs.base import Evaluation, JobState
from coding_model_project.launch.jobs.script_jobs import (
    LocalBackend,
    SlurmBackend,
    script,
    written_state,
)
from tests.tables import tables
from tests.unit.launch.jobs.conftest import make_job
from tests.waiting import wait_for


@pytest.mark.parametrize(
    ("command", "state"), [("true", JobState.finished), ("false", JobState.failed)]
)
def test_the_exit_code_is_kept_in_a_folder_of_any_name(tmp_path, monkeypatch, command, state):
    monkeypatch.setattr(sys, "executable", command)
    job = make_job(tmp_path, folder=f"{tmp_path}/jobs of mine's/sft-1")
    Path(job.folder).mkdir(parents=True)
    assert written_state(job) is None
    subprocess.run(["bash", "-c", script(job)], check=False)
    assert written_state(job) is state


# ── this machine and its GPUs ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def local_job(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # for the locks

    def make(gpus="", **fields):
        return make_job(tmp_path, backend="local", options={"gpus": gpus}, **fields)

    return make


def test_a_gpu_profile_needs_gpus(local_job):
    job = local_job(overrides=("hardware=gpu_1x",))
    with pytest.raises(ConfigError, match=r"--gpus=: hardware=gpu_1x needs GPUs; .*--gpus 0,1"):
        LocalBackend().check(job)


def test_a_job_without_gpus_sees_none_even_if_its_user_does(local_job, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with ZipFile(tmp_path / "p.zip", "w") as package:
        package.writestr("recipes/__init__.py", "")
        package.writestr("recipes/sft.py", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    job = local_job()
    Path(job.folder).mkdir(parents=True)
    started = LocalBackend().submit(job, tmp_path / "p.zip")
    os.waitpid(int(started["pid"]), 0)
    assert LocalBackend().log(job) == b"\n"


def test_the_lock_of_a_gpu_is_no_way_to_anothers_file(local_job, tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "coding-model-gpu-91.lock").symlink_to("victim")
    with pytest.raises(ConfigError, match=r"lock of GPU 91 cannot be opened"):
        script_jobs._lock(local_job(gpus="91"), "91", ExitStack())
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "victim").stat().st_mode & 0o666 != 0o666


def test_another_user_can_open_the_lock_of_a_gpu(local_job, tmp_path):
    before = os.umask(0o077)
    try:
        with ExitStack() as held:
            script_jobs._lock(local_job(gpus="90"), "90", held)
    finally:
        os.umask(before)
    (file,) = tmp_path.glob("coding-model-gpu-*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o666


# ── Slurm, by stand-ins of its commands ──────────────────────────────────────────────────────────────


_ROOT = Path(__file__).parents[4]


@pytest.fixture
def slurm_job(tmp_path):
    return make_job(tmp_path, backend="slurm", handle={"id": "7"})


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
    tables("launch")["slurm states"],
)
def test_a_failed_job_never_counts_as_finished(slurm_job, command, exit_code, state):
    command("scontrol", f"echo JobId=7 JobName=sft-1 JobState=FAILED ExitCode={exit_code}")
    assert SlurmBackend().state(slurm_job) == state


@pytest.mark.parametrize("name", ["scontrol", "scancel"])
def test_a_controller_that_times_out_is_a_job_error(slurm_job, command, name):
    command(name, "echo 'slurm error: Socket timed out on send/recv operation' >&2; exit 1")
    call = SlurmBackend().state if name == "scontrol" else SlurmBackend().kill
    with pytest.raises(JobError, match="timed out"):
        call(slurm_job)


@pytest.mark.parametrize(
    ("option", "refused"),
    tables("launch")["slurm limits"],
)
def test_limits_that_cannot_work_are_refused(tmp_path, command, option, refused):
    command("sbatch", "echo slurm 22.05")
    job = make_job(tmp_path, backend="slurm", overrides=("hardware=cpu",))
    backend = SlurmBackend(sbatch=[option])
    if not refused:
        backend.check(job)
        return
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        backend.check(job)


@pytest.fixture
def several(tmp_path, command, monkeypatch):
    """Return a job on two nodes, and a function that runs its script with an `srun` of one node.

    This `srun` skips `ray symmetric-run` and its options, and runs the entry point only.
    """
    run = tmp_path / "run"
    overrides = ("hardware=cpu", f"coding.run_dir={run}")
    job = make_job(tmp_path, backend="slurm", recipe="grpo", overrides=overrides)
    source = Path(job.folder, "source", "recipes")
    source.mkdir(parents=True)
    (source / "__init__.py").touch()
    shutil.copy(_ROOT / "tests" / "contract" / "stand_in.py", source / "grpo.py")
    command("scontrol", f'echo "$@" >> {tmp_path}/scontrol.txt; echo JobState=RUNNING')
    command(
        "srun",
        f'echo "$RAY_ADDRESS" "$@" > {tmp_path}/srun.txt\n'
        'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    )
    for name, value in {"ID": 7, "NUM_NODES": 2}.items():
        monkeypatch.setenv(f"SLURM_JOB_{name}", str(value))
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    script = tmp_path / "script.sh"
    script.write_text(SlurmBackend(sbatch=["--nodes=2", "--exclusive"]).text(job))

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "log.txt").open("ab") as log:
            return subprocess.Popen(["bash", str(script)], stdout=log, stderr=log)

    return job, start


@pytest.mark.slow
def test_several_nodes_are_one_ray_and_the_time_limit_saves_and_requeues(several, tmp_path):
    job, start = several
    log = tmp_path / "log.txt"
    saved = [0]
    for attempt in (1, 2):
        process = start()
        step = f"step {saved[-1] + 3}\n"
        wait_for(lambda step=step: step in log.read_text())
        process.send_signal(signal.SIGTERM)  # as --signal=B:TERM@900 does, to the script alone
        assert process.wait(60) == 0, log.read_text()
        checkpoints = Path(job.run_dir, "checkpoints").glob("*")
        saved = sorted(int(one.name.rpartition("_")[2]) for one in checkpoints)
        assert len(saved) == attempt
    assert "requeue 7" in (tmp_path / "scontrol.txt").read_text()
    assert log.read_text().count("step 1\n") == 1  # the second attempt resumed
    ran = (tmp_path / "srun.txt").read_text()
    found = re.match(r"([\d.]*:20007) (.*) ray symmetric-run (.*?) -- bash -c", ran)
    assert found is not None, ran
    address, of_srun, of_ray = found.groups()
    assert {"--ntasks=2", "--ntasks-per-node=1"} <= set(of_srun.split())
    assert of_ray == f"--address {address} --min-nodes 2 --num-cpus=4"
    assert ran.rstrip().endswith("trainer.nnodes=2")


def test_a_ray_that_does_not_start_is_a_failed_job(several, command, slurm_job):
    """`ray symmetric-run` ends with 0 if `ray start` fails."""
    _, start = several
    command("srun", "exit 0")
    assert start().wait(60) == 1


@pytest.mark.parametrize("gained", [True, False])
def test_a_run_that_ray_ended_for_a_dead_node_is_requeued_if_it_gained_a_checkpoint(
    several, command, tmp_path, gained
):
    """Ray notices the death before Slurm does."""
    job, start = several
    steps = f"mkdir -p {job.run_dir}/checkpoints/global_step_1; " if gained else ""
    command("srun", f"{steps}echo 3 > {job.folder}/exit_code")
    assert start().wait(60) == (0 if gained else 3)
    assert ("requeue 7" in (tmp_path / "scontrol.txt").read_text()) is gained


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGTERM])
def test_a_stop_while_ray_starts_ends_the_job_since_nothing_is_to_be_saved(
    several, command, tmp_path, how
):
    _, start = several
    command("srun", f"touch {tmp_path}/starts; exec sleep 100")
    process = start()
    wait_for((tmp_path / "starts").exists)
    process.send_signal(how)
    assert process.wait(60) == INTERRUPTED
    asked = tmp_path / "scontrol.txt"
    assert not asked.exists() or "requeue" not in asked.read_text()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "--nodes=2: recipes.sft uses the GPUs of one node"),
        ({"recipe": "grpo", "evaluation": Evaluation(gpus=1)}, "--nodes=2: --with-evaluation"),
        ({"recipe": "grpo"}, None),
    ],
)
def test_only_ray_s_recipes_have_several_nodes(tmp_path, command, fields, message):
    command("sbatch", "echo slurm 22.05")
    job = make_job(tmp_path, backend="slurm", **fields)
    backend = SlurmBackend(sbatch=["--nodes=2"])
    if message is None:
        backend.check(job)
        assert "trainer.nnodes" not in SlurmBackend().text(job)
    else:
        with pytest.raises(ConfigError, match=message):
            backend.check(job)
