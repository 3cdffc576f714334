"""Nothing of a run stays behind, whatever ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

RUN = """
import subprocess, sys, tempfile, time
from coding_model_project.isolation.processes import start_sentinel
start_sentinel()
child = subprocess.Popen(["sleep", "100"], start_new_session=True)
print(child.pid, tempfile.mkstemp()[1], flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("seconds", [0, 100], ids=["ends", "killed"])
def test_neither_processes_nor_temporary_files_stay(seconds):
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    pid, file = run.stdout.readline().split()
    if seconds:
        run.send_signal(signal.SIGKILL)
    run.wait(10)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (
        psutil.pid_exists(int(pid)) or Path(file).parent.exists()
    ):
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid))
    assert not Path(file).parent.exists()
    assert Path(file).parent.name.startswith("run-")
