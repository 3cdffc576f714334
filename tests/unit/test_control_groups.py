"""Cores and memory within the limits of control groups, for judges, runs and the doctor."""

import math
import os

import pytest

from coding_model_project import control_groups
from coding_model_project.control_groups import free_memory, usable_cores
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import checks

GIB = 2**30
JOB = "system.slice/slurmstepd.scope/job_7"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def container(root):
    """Return the only group that a container sees."""
    (root / "proc/self/cgroup").write_text("0::/\n")
    return root / "sys/fs/cgroup"


def slurm_step(root):
    """Return the group of a Slurm job on a host, in whose step the process is."""
    (root / "proc/self/cgroup").write_text(f"1:name=systemd:/\n0::/{JOB}/step_0/user\n")
    return root / "sys/fs/cgroup" / JOB


def version_1(root, controller):
    """Return the group of a controller in a container of version 1, which sees its host's path."""
    (root / "proc/self/cgroup").write_text(
        f"4:{controller}:/docker/7\n1:name=systemd:/docker/7\n0::/\n"
    )
    group = root / "sys/fs/cgroup" / controller
    group.mkdir(parents=True)
    return group


def limit_memory(group, limit, used=0, cache=0):
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\nslab 2\n")


def limit_cpus(group, quota):
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.max").write_text(f"{quota} 100000\n")


@pytest.mark.parametrize(
    ("quota", "cores"), [("max", 8), (400_000, 4), (250_000, 2), (50_000, 1), (9_900_000, 8)]
)
def test_cores_within_a_containers_quota(root, quota, cores):
    limit_cpus(container(root), quota)
    assert usable_cores(root) == cores


def test_a_containers_memory(root):
    assert (usable_cores(root), free_memory(root)) == (8, math.inf)  # no groups
    limit_memory(container(root), "max")
    assert free_memory(root) == math.inf
    limit_memory(container(root), 16 * GIB, used=6 * GIB, cache=GIB)
    assert free_memory(root) == 11 * GIB


def test_a_slurm_job_has_the_least_of_the_limits_above_its_step(root):
    job = slurm_step(root)
    limit_memory(job, 32 * GIB, used=2 * GIB)
    limit_memory(job / "step_0", "max")
    limit_memory(job / "step_0/user", 64 * GIB)
    assert free_memory(root) == 30 * GIB
    limit_cpus(job, 300_000)
    limit_cpus(job / "step_0", "max")
    assert usable_cores(root) == 3


def test_a_run_is_refused_by_the_limit_too(monkeypatch):
    monkeypatch.setattr(control_groups, "free_memory", lambda: 4.0 * GIB)
    with pytest.raises(ConfigError, match=r"4\.0 GB of memory are free, but this run needs 48"):
        checks.check_memory(48)


@pytest.mark.parametrize(("quota", "cores"), [(-1, 8), (250_000, 2)])
def test_cores_within_a_quota_of_version_1(root, quota, cores):
    group = version_1(root, "cpu")
    (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(root) == cores


def test_memory_within_a_limit_of_version_1(root):
    group = version_1(root, "memory")
    (group / "memory.limit_in_bytes").write_text(f"{2 * GIB}\n")
    (group / "memory.usage_in_bytes").write_text(f"{GIB}\n")
    (group / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {GIB // 2}\n")
    assert free_memory(root) == 1.5 * GIB
