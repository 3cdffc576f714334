"""The script of a job on this machine's disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coding_model_project.launch.jobs.base import JobState
from coding_model_project.launch.jobs.command import script, written_state
from tests.unit.launch.jobs.conftest import make_job


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
