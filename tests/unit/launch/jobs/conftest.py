"""A small working tree, and a job that ships it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from coding_model_project.launch.jobs.base import Job
from coding_model_project.launch.jobs.control import JobLog


def git(cwd: Path, *arguments: str) -> str:
    """Run git and return what it prints."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def repo(tmp_path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / ".gitignore").write_text("data/\n")
    (root / "tool.sh").write_text("echo 1\n")
    (root / "tool.sh").chmod(0o755)
    (root / "old.py").write_text("x = 1\n")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "first")
    return root


@pytest.fixture
def log(tmp_path) -> JobLog:
    return JobLog(tmp_path / "jobs")


@pytest.fixture
def job(tmp_path) -> Job:
    return make_job(tmp_path)


def make_job(tmp_path: Path, **fields) -> Job:
    """Return a job of a run in a temporary folder."""
    given = {
        "name": "sft-1",
        "backend": "ray",
        "options": {"address": "http://head:8265"},
        "recipe": "sft",
        "overrides": ("hardware=cpu", f"coding.run_dir={tmp_path}/run"),
        "run_dir": f"{tmp_path}/run",
        "folder": f"{tmp_path}/jobs/sft-1",
        "cwd": str(tmp_path),
        "commit": "c0ffee",
        "patch": "",
        "submitted": time.time(),
    }
    return Job(**{**given, **fields})
