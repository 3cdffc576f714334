"""The doctor's output and exit codes; the real one imports nothing heavy."""

import json
import os
import re
import subprocess
import sys

import pytest

import coding_model_project.cli as cli
from coding_model_project import doctor
from coding_model_project.doctor import Finding, Status, deep

HEAVY = "torch verl ray vllm transformers numpy"


def test_deep_runs_programs_and_names_their_error():
    assert deep.run("x", "print('noise'); print('x 1.0')").finding.startswith("x 1.0; ")
    failed = deep.run("x", "import no_such_module_here")
    assert failed.status is Status.problem
    assert "no_such_module_here" in failed.finding
    assert deep.run("x", "import time; time.sleep(9)", timeout_s=0.2).status is Status.problem


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
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    last = result.stdout.splitlines()[-1]
    found = re.fullmatch(r"(\d+) ok, .* (\d+) problems?: .*", last)
    assert found, result.stdout + result.stderr
    assert result.returncode == (1 if int(found[2]) else 0), result.stderr
    assert int(found[1]) >= 5


@pytest.mark.verl
@pytest.mark.soak  # half a minute of imports that every training makes
def test_deep_for_real():
    findings = list(deep.imports())
    assert [finding.status for finding in findings] == [Status.ok] * len(findings)
