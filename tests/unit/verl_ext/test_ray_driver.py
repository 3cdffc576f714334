"""Clusters that cannot be joined: one line, and how long it takes."""

import socket
import subprocess
import sys
import time

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError
from coding_model_project.verl_ext.cluster.ray_driver import _why, head_address
from tests.fakes import stdin_problem

pytestmark = pytest.mark.slow


@pytest.fixture
def judging(tmp_path, monkeypatch):
    """Run `grade --cluster ray` in a process of its own, which is in no Ray; its exit code and error."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    write_problems(tmp_path / "p.jsonl", [stdin_problem(("", "1"))])
    (tmp_path / "c.jsonl").write_text('{"problem_id": "fake/1", "completion": "1"}\n')

    def run(*more):
        given = [
            "--problems",
            str(tmp_path / "p.jsonl"),
            "--completions",
            str(tmp_path / "c.jsonl"),
        ]
        command = [sys.executable, "-m", "coding_model_project", "grade", *given]
        done = subprocess.run(
            [*command, "--cluster", "ray", *more], capture_output=True, text=True, check=False
        )
        said = done.stderr.splitlines()
        return done.returncode, [line for line in said if line.startswith("error:")]

    return run


def test_a_head_that_is_not_there_is_one_line_and_soon(judging):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        started = time.monotonic()
        code, (line,) = judging("--ray-address", address)
    assert code == 3
    assert address in line and "no Ray head answers" in line and "ray start --head" in line
    assert time.monotonic() - started < 60  # Ray would try for minutes


def test_an_address_is_needed_and_of_one_form(judging, monkeypatch):
    code, (line,) = judging()
    assert code == 2 and "--ray-address HOST:PORT" in line and "RAY_ADDRESS" in line
    for wrong in ("ray://10.0.0.1:10001", "10.0.0.1", "10.0.0.1:port", ":6379", "auto"):
        code, (line,) = judging("--ray-address", wrong)
        assert code == 2 and f"--ray-address={wrong}: must be HOST:PORT" in line
    monkeypatch.setenv("RAY_ADDRESS", "ray://x:1")
    with pytest.raises(ConfigError, match="RAY_ADDRESS=ray://x:1"):
        head_address(None)
    assert head_address("[::1]:6379") == "[::1]:6379"


def test_reasons_name_the_way_out():
    versions = RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0")
    assert "versions differ from the head's" in _why("h:1", versions)
    assert "RAY_AUTH_TOKEN" in _why("h:1", RuntimeError("AuthenticationError: invalid token"))
    assert "ray start --address=h:1" in _why("h:1", RuntimeError("no node at this address"))
