"""Clusters that cannot be joined: one line, and how long it takes."""

import socket
import time

import pytest

from coding_model_project import cli
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError
from coding_model_project.verl_ext.cluster.ray_driver import _why, head_address
from tests.fakes import stdin_problem

pytestmark = pytest.mark.slow


@pytest.fixture
def judging(tmp_path, monkeypatch, capsys):
    """Run `grade --cluster ray`; its exit code and its error."""
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
        code = cli.main(["grade", *given, "--cluster", "ray", *more])
        said = capsys.readouterr().err.splitlines()
        return code, [line for line in said if line.startswith("error:")]

    return run


def test_a_head_that_is_not_there_is_one_line_and_soon(judging):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        started = time.monotonic()
        code, (line,) = judging("--ray-address", address)
    assert code == 3
    assert address in line and "no Ray head answers" in line and "ray start --head" in line
    assert time.monotonic() - started < 15


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
