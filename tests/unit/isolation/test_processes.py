"""Nothing of a run stays behind, whatever ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from coding_model_project.isolation import processes
from tests.text_cases import sources
from tests.waiting import wait_for

SOURCES = sources(__file__)

pytestmark = pytest.mark.slow

RUN = SOURCES["run"]


@pytest.mark.parametrize("seconds", [0, 100], ids=["ends", "killed"])
def test_neither_processes_nor_temporary_files_stay(seconds):
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    pid, file = run.stdout.readline().split()
    if seconds:
        run.send_signal(signal.SIGKILL)
    run.wait(60)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (
        psutil.pid_exists(int(pid)) or Path(file).parent.exists()
    ):
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid))
    assert not Path(file).parent.exists()
    assert Path(file).parent.name.startswith("run-")


def test_only_a_folder_of_the_run_itself_is_made_and_removed_on_other_nodes(monkeypatch):
    monkeypatch.setenv(processes.TOKEN, "abc")
    monkeypatch.setenv("TMPDIR", "/scratch/me")
    assert processes.own_temporary_files() == ("abc", "")
    monkeypatch.setenv("TMPDIR", "/scratch/run-abc")
    assert processes.own_temporary_files() == ("abc", "/scratch/run-abc")


def test_a_stand_in_ends_what_carries_the_token_and_removes_the_folder(tmp_path):
    folder = tmp_path / "run-abc"
    asleep = subprocess.Popen(["sleep", "60"], env={processes.TOKEN: "abc"})
    code = (
        f"from coding_model_project.isolation import processes as p; p.stand_in('abc', '{folder}')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert asleep.wait(60) != 0
    wait_for(lambda: not folder.exists())


def test_a_stand_in_does_its_work_though_its_process_kills_all_children_at_exit(tmp_path):
    asleep = subprocess.Popen(["sleep", "60"], env={processes.TOKEN: "abc"})
    code = f"""
import psutil
from coding_model_project.isolation import processes as p
p.stand_in("abc", {str(tmp_path / "run-abc")!r})
for child in psutil.Process().children():  # as Ray's workers do
    child.kill()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert asleep.wait(60) != 0
