"""Jobs on this machine, and the GPUs that they may use."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path
from zipfile import ZipFile

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.jobs import local
from coding_model_project.launch.jobs.local import LocalBackend
from tests.unit.launch.jobs.conftest import make_job


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
        local._lock(local_job(gpus="91"), "91", ExitStack())
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "victim").stat().st_mode & 0o666 != 0o666


def test_another_user_can_open_the_lock_of_a_gpu(local_job, tmp_path):
    before = os.umask(0o077)
    try:
        with ExitStack() as held:
            local._lock(local_job(gpus="90"), "90", held)
    finally:
        os.umask(before)
    (file,) = tmp_path.glob("coding-model-gpu-*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o666
