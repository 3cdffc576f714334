"""Clusters that cannot be joined end the command with one line, soon."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import ray

from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ClusterError, ConfigError
from coding_model_project.verl_ext.cluster.session import head_address, init_ray, joined
from tests.fakes import stdin_problem

pytestmark = pytest.mark.slow

OVERRIDE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"


@pytest.fixture
def judging(tmp_path, monkeypatch):
    """Run `grade --cluster ray` in a separate process without Ray; returns its exit code and errors."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    write_problems(tmp_path / "p.jsonl", [stdin_problem(("", "1"))])
    (tmp_path / "c.jsonl").write_text('{"problem_id": "fake/1", "completion": "1"}\n')

    def run(*more):
        given = [f"--problems={tmp_path}/p.jsonl", f"--completions={tmp_path}/c.jsonl"]
        command = [sys.executable, "-m", "coding_model_project", "grade", *given]
        command += ["--cluster", "ray", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    assert time.monotonic() - started < 120  # Ray would try for minutes


def test_an_address_is_needed_and_of_one_form(judging, monkeypatch):
    code, (line,) = judging()
    assert code == 2 and "--ray-address HOST:PORT" in line and "RAY_ADDRESS" in line
    for wrong in ("ray://10.0.0.1:10001", "10.0.0.1", "10.0.0.1:port", ":6379", "auto"):
        with pytest.raises(ConfigError, match=f"--ray-address={re.escape(wrong)}: must be"):
            head_address(wrong)
    monkeypatch.setenv("RAY_ADDRESS", "ray://x:1")
    with pytest.raises(ConfigError, match="RAY_ADDRESS=ray://x:1"):
        head_address(None)
    assert head_address("[::1]:6379") == "[::1]:6379"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("Version mismatch: Ray: 2.9.0"), "versions differ from the head's"),
        (RuntimeError("AuthenticationError: invalid token"), "RAY_AUTH_TOKEN"),
        (ValueError("no node at\nthis address"), r"no node at this address.*`ray start --add"),
        (ConnectionError(), r"cannot join \(ConnectionError\)"),
    ],
)
def test_a_refusal_names_the_way_out_and_leaves_no_ray_behind(monkeypatch, error, reason):
    def refuse(**_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise error

    ended = []
    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ClusterError, match=f"^Ray at h:1: .*{reason}"):
        init_ray({"address": "h:1"}, joins="h:1", name="Ray at h:1")
    assert ended and signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(type(error)):
        init_ray({}, joins=None, name="")


def test_a_driver_inside_a_ray_job_keeps_the_jobs_variables_beside_its_own(monkeypatch):
    """Ray refuses both together, with a line that it cannot be joined, unless it is told so."""
    seen = []
    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # of an earlier test in this process
    monkeypatch.setattr(ray, "init", lambda **_: seen.append(os.environ.get(OVERRIDE)))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    head = socket.create_server(("127.0.0.1", 0))
    with head, joined(f"127.0.0.1:{head.getsockname()[1]}", {"env_vars": {"A": "1"}}):
        pass
    assert seen == ["1"]
    monkeypatch.delenv(OVERRIDE)
