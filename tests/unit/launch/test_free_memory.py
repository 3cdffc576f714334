"""Free memory is that within the limits of this process's control groups, for runs as for the doctor."""

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import checks
from coding_model_project.launch.sizing import machine

GIB = 2**30


def group(folder, limit, used=0, cache=0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\nslab 2\n")


@pytest.fixture
def root(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def test_a_container_is_the_root_of_its_own_groups(root):
    (root / "proc/self/cgroup").write_text("0::/\n")
    assert machine._cgroup_free(root) == float("inf")
    group(root / "sys/fs/cgroup", "max")
    assert machine._cgroup_free(root) == float("inf")
    group(root / "sys/fs/cgroup", 16 * GIB, used=6 * GIB, cache=GIB)
    assert machine._cgroup_free(root) == 11 * GIB


def test_a_slurm_job_has_the_least_of_the_limits_above_its_step(root):
    job = "system.slice/slurmstepd.scope/job_7"
    (root / "proc/self/cgroup").write_text(f"1:name=systemd:/\n0::/{job}/step_0/user\n")
    groups = root / "sys/fs/cgroup"
    group(groups / job, 32 * GIB, used=2 * GIB)
    group(groups / job / "step_0", "max")
    group(groups / job / "step_0/user", 64 * GIB)
    assert machine._cgroup_free(root) == 30 * GIB


def test_a_run_is_refused_by_the_limit_too(monkeypatch):
    monkeypatch.setattr(machine, "_cgroup_free", lambda: 4.0 * GIB)
    with pytest.raises(ConfigError, match=r"4\.0 GB of memory are free, but this profile needs 48"):
        checks.check_memory(48)
